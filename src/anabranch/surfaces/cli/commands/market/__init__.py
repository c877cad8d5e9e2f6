"""The verb `market`: documents of the market, checked alone.

Making keys and passports is `passport`; a node that trades with them is `node`.
"""
