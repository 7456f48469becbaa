//! Orders of messages, written as their tags: what was asked, with small letters for what a Describe names, and what came.

use proptest::prelude::*;

use super::*;

/// `P` Parse, `B` Bind, `s` Describe of a statement, `p` of a portal, `E` Execute, `C` Close, `S` Sync, `Q` Query, `c` CopyDone.
fn ask(protocol: &mut ShardProtocol, requests: &str) {
    for request in requests.bytes() {
        match request {
            b's' => protocol.asked(client_tag::DESCRIBE, Some(b'S')),
            b'p' => protocol.asked(client_tag::DESCRIBE, Some(b'P')),
            tag => protocol.asked(tag, None),
        }
    }
}

/// A message with two bytes of body.
fn message(tag: u8) -> [u8; 7] {
    [tag, 0, 0, 0, 6, b'x', b'y']
}

fn hear(protocol: &mut ShardProtocol, answers: &str) -> Result<(), (usize, DecodeError)> {
    let bytes: Vec<u8> = answers.bytes().flat_map(message).collect();
    protocol.received(&bytes, 100)
}

/// How many messages are right, and whether something is owed then.
fn heard(requests: &str, answers: &str) -> (usize, bool) {
    let mut protocol = ShardProtocol::default();
    ask(&mut protocol, requests);
    let right = hear(&mut protocol, answers).map_or_else(|(at, _)| at / 7, |()| answers.len());
    (right, protocol.owes())
}

#[test]
fn what_postgresql_says_is_in_order() {
    let cases = [
        ("Q", "CZ"),
        ("Q", "TDDCZ"),
        ("Q", "IZ"),
        ("Q", "EZ"),
        ("Q", "NTDSDNCNAZ"),
        ("Q", "TDCCTCZ"),
        ("Q", "TDE"),
        // A rule that adds a query.
        ("Q", "TDTDCZ"),
        ("Q", "HddcCTDCZ"),
        ("QcQ", "GCZCZ"),
        ("QQ", "TDCZEZ"),
        ("PBpES", "12TDDCZ"),
        ("PsS", "1tTZ"),
        ("PsS", "1tnZ"),
        ("BpES", "2nCZ"),
        ("BEES", "2DsDDCZ"),
        ("BES", "2IZ"),
        ("CS", "3Z"),
        ("PBESBES", "1EZ2CZ"),
        ("BESQ", "2CEZCZ"),
        // Skipped with the rest, a Query too.
        ("PBEQS", "EZ"),
        ("BES", "2HddcCZ"),
        ("BEcS", "2GCZ"),
    ];
    for (requests, answers) in cases {
        let (right, _) = heard(requests, answers);
        assert_eq!(right, answers.len(), "{requests}: {answers}");
        assert_eq!(heard(requests, answers).1, !answers.ends_with('Z'), "{requests}: {answers}");
    }
}

#[test]
fn what_is_left_out_repeated_or_somebody_elses_is_not() {
    // The second number: so many of them are in order.
    let cases = [
        ("Q", "TDDZ", 3),
        ("Q", "Z", 0),
        ("Q", "DCZ", 0),
        ("Q", "CDZ", 1),
        ("Q", "TDCZZ", 4),
        ("Q", "TDCZDC", 4),
        ("Q", "TEC", 2),
        ("Q", "1CZ", 0),
        ("Q", "HddCZ", 3),
        ("Q", "HDcCZ", 1),
        ("Q", "GCZ", 1),
        ("Q", "TI", 1),
        ("Q", "Td", 1),
        ("Q", "V", 0),
        ("", "D", 0),
        ("", "C", 0),
        ("", "NSAZ", 3),
        ("PBES", "12DDZ", 4),
        ("PBES", "2DCZ", 0),
        ("PBES", "1DCZ", 1),
        ("PBES", "11", 1),
        ("PBES", "12TDCZ", 2),
        ("PBES", "12DCCZ", 4),
        ("PBES", "1EC", 2),
        ("PsS", "1TZ", 1),
        ("PsS", "1tZ", 2),
        ("PpS", "1ttZ", 1),
        ("BES", "2HdZ", 3),
        ("S", "EEDZ", 2),
    ];
    for (requests, answers, right) in cases {
        assert_eq!(heard(requests, answers).0, right, "{requests}: {answers}");
    }
}

#[test]
fn the_last_words_are_the_last() {
    assert_eq!(heard("", "E"), (1, true));
    assert_eq!(heard("", "EN").0, 1);
    assert_eq!(heard("", "EE").0, 1);
    // Asked or not: the connection may end in the middle.
    assert_eq!(heard("Q", "TDE"), (3, true));
}

#[test]
fn syncs_within_the_data_of_a_copy_are_not_answered() {
    assert_eq!(heard("BESScS", "2GCZ"), (4, false));
    assert_eq!(heard("QSSc", "GCZ"), (3, false));
    // Failed by itself: which of them the shard has read it shows by what was put behind them.
    for unread in 0..=2 {
        let mut protocol = ShardProtocol::default();
        ask(&mut protocol, "BESS");
        hear(&mut protocol, "2GE").expect("in order");
        ask(&mut protocol, "SCS");
        hear(&mut protocol, &"Z".repeat(unread + 1)).expect("in order");
        assert!(protocol.owes());
        hear(&mut protocol, "3Z").expect("in order");
        assert!(!protocol.owes(), "{unread}");
        assert!(hear(&mut protocol, "Z").is_err(), "{unread}");
    }
    for unread in 0..=2 {
        let mut protocol = ShardProtocol::default();
        ask(&mut protocol, "QSS");
        hear(&mut protocol, "GEZ").expect("in order");
        ask(&mut protocol, "CS");
        hear(&mut protocol, &format!("{}3Z", "Z".repeat(unread))).expect("in order");
        assert!(!protocol.owes(), "{unread}");
    }
    // The end of data that nobody reads any more.
    let mut protocol = ShardProtocol::default();
    ask(&mut protocol, "Q");
    hear(&mut protocol, "GEZ").expect("in order");
    ask(&mut protocol, "c");
    assert!(!protocol.owes());
    ask(&mut protocol, "Q");
    hear(&mut protocol, "TDCZ").expect("in order");
}

#[test]
fn impossible_lengths_are_refused_wherever_they_are_cut() {
    for length in [0_u32, 3, 105, 0x8000_0004, u32::MAX] {
        let bytes = [&message(b'T')[..], b"D", &length.to_be_bytes(), b"xx"].concat();
        for cut in 0..bytes.len() {
            let mut protocol = ShardProtocol::default();
            ask(&mut protocol, "Q");
            let (first, second) = bytes.split_at(cut);
            let result = protocol.received(first, 100).and_then(|()| protocol.received(second, 100));
            assert!(result.is_err(), "{length} cut at {cut}");
        }
    }
}

/// What a client may ask and how a server may answer it, side by side.
fn exchange() -> impl Strategy<Value = (&'static str, &'static str)> {
    prop::sample::select(vec![
        ("Q", "TDDCZ"),
        ("Q", "CZ"),
        ("Q", "IZ"),
        ("Q", "TDEZ"),
        ("Q", "HdcCZ"),
        ("Qc", "GCZ"),
        ("Qc", "GEZ"),
        ("PBpES", "12TDCZ"),
        ("PBEES", "12DsDCZ"),
        ("PsS", "1tTZ"),
        ("PsCS", "1tn3Z"),
        ("PBES", "EZ"),
        ("PBES", "12DEZ"),
        ("BES", "2CEZ"),
        ("BESc", "2GC"),
        ("BEcS", "2GEZ"),
    ])
}

proptest! {
    /// However they are cut: what is right passes, and at the end nothing is owed.
    #[test]
    fn right_orders_pass_in_any_pieces(exchanges in prop::collection::vec(exchange(), 1..6), cuts in prop::collection::vec(1_usize..20, 0..40)) {
        let mut protocol = ShardProtocol::default();
        exchanges.iter().for_each(|(requests, _)| ask(&mut protocol, requests));
        let bytes: Vec<u8> = exchanges.iter().flat_map(|(_, answers)| answers.bytes()).flat_map(message).collect();
        let mut rest = &bytes[..];
        for cut in cuts {
            let (piece, after) = rest.split_at(cut.min(rest.len()));
            prop_assert!(protocol.received(piece, 100).is_ok());
            rest = after;
        }
        prop_assert!(protocol.received(rest, 100).is_ok());
        prop_assert!(!protocol.owes());
    }

    /// One message less, twice, or in the place of its neighbour is noticed, at the latest when the next thing is asked: nothing passes
    /// for a whole answer that is not.
    #[test]
    fn one_wrong_message_is_noticed(
        exchange in exchange(),
        at in 0_usize..100,
        change in 0_usize..3,
    ) {
        let (requests, answers): (&str, &str) = exchange;
        let at = at % answers.len();
        // An error may come at any place, and whether a statement asks for data is for the server to know.
        prop_assume!(!answers.contains('E'));
        prop_assume!(change != 0 || answers.as_bytes()[at] != b'G');
        let mut changed: Vec<u8> = answers.bytes().collect();
        match change {
            0 => { changed.remove(at); }
            1 => changed.insert(at, changed[at]),
            _ => changed.swap(at, (at + 1) % answers.len()),
        }
        // The same of a row more or less.
        let is_told = |answers: &[u8]| answers.iter().filter(|tag| !b"Dd".contains(tag)).copied().collect::<Vec<_>>();
        prop_assume!(is_told(&changed) != is_told(answers.as_bytes()));
        // Of these the first message says all: a Query may have several statements, a statement no columns.
        prop_assume!(!(requests.starts_with('Q') && change == 1 && matches!(changed[at], b'C' | b'T')));
        let changed = String::from_utf8(changed).expect("letters");
        let (right, owes) = heard(requests, &changed);
        prop_assert!(right < changed.len() || owes, "{requests}: {changed}");
    }

    /// Anything at all: no panic, and never more ReadyForQuery than were asked for.
    #[test]
    fn any_order_is_passed_or_refused(events in prop::collection::vec((any::<bool>(), 0_usize..100), 0..60)) {
        let mut protocol = ShardProtocol::default();
        let (mut asked, mut ready) = (0, 0);
        for (is_request, which) in events {
            if is_request {
                let request = b"PBspECSQcdH"[which % 11];
                asked += u32::from(matches!(request, b'S' | b'Q'));
                ask(&mut protocol, std::str::from_utf8(&[request]).expect("a letter"));
            } else {
                let answer = b"123CDEGHINSTZcdnstAV"[which % 20];
                if hear(&mut protocol, std::str::from_utf8(&[answer]).expect("a letter")).is_err() {
                    break;
                }
                ready += u32::from(answer == b'Z');
            }
            prop_assert!(ready <= asked);
        }
    }
}
