"""What statements of an author may have SQLite do: closed lists.

SQLite runs inside the engine. Some of what it offers reaches beyond the connection that asks: one
pragma limits the memory of the whole process, one function calls an address that it is given. So
what stands here is allowed, and what a newer SQLite brings is refused until it stands here.
"""

from __future__ import annotations

import sqlite3

#: Of the authorizer: what reads and changes the tables of this connection.
ACTIONS = frozenset(
    {
        sqlite3.SQLITE_ALTER_TABLE,
        sqlite3.SQLITE_ANALYZE,
        sqlite3.SQLITE_CREATE_INDEX,
        sqlite3.SQLITE_CREATE_TABLE,
        sqlite3.SQLITE_CREATE_TEMP_INDEX,
        sqlite3.SQLITE_CREATE_TEMP_TABLE,
        sqlite3.SQLITE_CREATE_TEMP_TRIGGER,
        sqlite3.SQLITE_CREATE_TEMP_VIEW,
        sqlite3.SQLITE_CREATE_TRIGGER,
        sqlite3.SQLITE_CREATE_VIEW,
        sqlite3.SQLITE_DELETE,
        sqlite3.SQLITE_DETACH,
        sqlite3.SQLITE_DROP_INDEX,
        sqlite3.SQLITE_DROP_TABLE,
        sqlite3.SQLITE_DROP_TEMP_INDEX,
        sqlite3.SQLITE_DROP_TEMP_TABLE,
        sqlite3.SQLITE_DROP_TEMP_TRIGGER,
        sqlite3.SQLITE_DROP_TEMP_VIEW,
        sqlite3.SQLITE_DROP_TRIGGER,
        sqlite3.SQLITE_DROP_VIEW,
        sqlite3.SQLITE_DROP_VTABLE,
        sqlite3.SQLITE_INSERT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_RECURSIVE,
        sqlite3.SQLITE_REINDEX,
        sqlite3.SQLITE_SAVEPOINT,
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_TRANSACTION,
        sqlite3.SQLITE_UPDATE,
    }
)

#: Kinds of virtual tables that keep what they hold in tables of the same database.
MODULES = frozenset(
    {
        "fts3",
        "fts3tokenize",
        "fts4",
        "fts4aux",
        "fts5",
        "fts5vocab",
        "geopoly",
        "rtree",
        "rtree_i32",
    }
)

#: Tables that are pages of the file, with nothing between: whoever writes them can damage it.
CLOSED_TABLES = frozenset({"sqlite_dbpage"})

_FUNCTIONS = """
abs changes char coalesce concat concat_ws format glob hex if ifnull iif instr
last_insert_rowid length like likelihood likely lower ltrim max min nullif octet_length printf
quote random randomblob replace round rtrim sign soundex sqlite_compileoption_get
sqlite_compileoption_used sqlite_offset sqlite_source_id sqlite_version substr substring
subtype total_changes trim typeof unhex unicode unistr unistr_quote unlikely upper zeroblob

avg count group_concat median percentile percentile_cont percentile_disc string_agg sum total

cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank
row_number

current_date current_time current_timestamp date datetime julianday strftime time timediff
unixepoch

acos acosh asin asinh atan atan2 atanh ceil ceiling cos cosh degrees exp floor ln log log10
log2 mod pi pow power radians sin sinh sqrt tan tanh trunc

-> ->> json json_array json_array_insert json_array_length json_error_position json_extract
json_group_array json_group_object json_insert json_object json_patch json_pretty json_quote
json_remove json_replace json_set json_type json_valid
jsonb jsonb_array jsonb_array_insert jsonb_extract jsonb_group_array jsonb_group_object
jsonb_insert jsonb_object jsonb_patch jsonb_remove jsonb_replace jsonb_set

bm25 fts5_get_locale fts5_insttoken fts5_locale fts5_source_id highlight match matchinfo
offsets optimize regexp rtreecheck snippet

geopoly_area geopoly_bbox geopoly_blob geopoly_ccw geopoly_contains_point geopoly_debug
geopoly_group_bbox geopoly_json geopoly_overlap geopoly_regular geopoly_svg geopoly_within
geopoly_xform

sqlite_drop_column sqlite_drop_constraint sqlite_add_constraint sqlite_fail
sqlite_find_constraint sqlite_rename_column sqlite_rename_quotefix sqlite_rename_table
sqlite_rename_test
"""
#: Not `fts3_tokenizer`, which gives and takes addresses in this process, nor `load_extension`; not
#: what is there to examine SQLite itself. The last of them are what ALTER TABLE consists of: no
#: statement can name them.
FUNCTIONS = frozenset(_FUNCTIONS.split())

_PRAGMAS = """
analysis_limit application_id auto_vacuum automatic_index busy_timeout cache_size cache_spill
case_sensitive_like cell_size_check checkpoint_fullfsync collation_list compile_options
count_changes data_version database_list default_cache_size defer_foreign_keys
empty_result_callbacks encoding foreign_key_check foreign_key_list foreign_keys freelist_count
full_column_names fullfsync function_list ignore_check_constraints incremental_vacuum
index_info index_list index_xinfo integrity_check journal_mode journal_size_limit
legacy_alter_table legacy_file_format locking_mode max_page_count module_list optimize
page_count page_size pragma_list query_only quick_check read_uncommitted recursive_triggers
reverse_unordered_selects secure_delete short_column_names shrink_memory synchronous
table_info table_list table_xinfo temp_store threads trusted_schema user_version
wal_autocheckpoint wal_checkpoint
"""
#: Of this connection or of its databases, with a value and without one.
PRAGMAS = frozenset(_PRAGMAS.split())

#: Only read: a file that another cuts short ends the process that has it mapped, and whoever sets
#: the others can damage the database for the SQLite of everybody who opens it.
READ_PRAGMAS = frozenset({"mmap_size", "schema_version", "writable_schema"})
