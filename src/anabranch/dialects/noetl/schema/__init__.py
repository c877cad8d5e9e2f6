"""The JSON Schema of playbooks, place by place; `document.schema` puts it together.

Nothing here reads a playbook: what the readers of the other modules take, the schema describes.
"""

from anabranch.dialects.noetl.schema.document import schema as schema
