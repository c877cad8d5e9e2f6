"""How the catalog of Arca hears of offers: from the host, from other catalogs, from Agora.

`admitter` admits what came with the trust of the host, `local_offers` copies the offers of the
node, `peers` asks other catalogs again and again, `remote_query` asks them once, `agora` replays
records, `fan_out_answers` answers peers that ask for an offer. Nothing here opens a connection.
"""
