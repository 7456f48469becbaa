//! The lexer that finds literals, on any text: its places are in order, within the text and on characters' boundaries.

#![no_main]

use libfuzzer_sys::fuzz_target;
use shardgate::sql::parse::lexer;

fuzz_target!(|text: &str| {
    let mut end = 0;
    for token in lexer::tokens(text) {
        assert!(end <= token.start && token.start < token.end);
        assert!(text.get(token.start..token.end).is_some());
        end = token.end;
    }
    let scanned = lexer::scan(text);
    assert_eq!(scanned.hash, lexer::scan(text).hash);
    let mut end = 0;
    for literal in &scanned.literals {
        assert!(end <= literal.start && literal.start < literal.end);
        assert!(text.get(literal.start as usize..literal.end as usize).is_some());
        end = literal.end;
    }
    assert!(lexer::same_shape(text, &scanned.literals, text, &scanned.literals));
});
