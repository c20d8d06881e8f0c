"""JSON Schema as rules of a grammar.

document    the schema's JSON, its drafts, `$ref`
keywords    what each keyword is: enforced, an annotation, or refused
shapes      the normal form: a union of shapes, one JSON type each; intersection, emptiness
expand      keywords become shapes; negation of keywords becomes shapes too
members     members of names that are not listed, and those of which there must be some
unevaluated what `unevaluatedProperties` and `unevaluatedItems` leave over
rules       shapes become rules and terminals (objects, arrays and numbers in files of their own)
"""
