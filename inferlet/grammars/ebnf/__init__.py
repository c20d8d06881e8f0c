"""EBNF: `name ::= expression`. Parsed into trees with references, and cut into lexemes exactly."""
