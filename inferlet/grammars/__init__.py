"""How grammars are made: schemas, regexes and EBNF become one grammar text for the engine.

    charset      sets of characters
    regex/*      one tree for regular languages: parsed from two dialects, written for the engine
    schema/*     JSON Schema: resolved, brought to a normal form, written as rules
    ebnf/*       rules of the user's own; lexemes are cut so that no choice of theirs is lost
    lark         the grammar text under construction
    engine       the compiled object, and its walk over tokens
    explain      the expected text in words

Nothing here knows of channels or passes.
"""
