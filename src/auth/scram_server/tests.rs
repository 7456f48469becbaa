//! Against postgres-protocol's client, and against what no honest client sends.

use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};

use super::super::scram::ITERATIONS;
use super::*;

const HASH: [u8; 32] = [7; 32];

fn verifier(password: &str) -> ScramVerifier {
    ScramKeys::derive(password.as_bytes(), b"0123456789abcdef", ITERATIONS).verifier()
}

fn bound() -> Binding {
    Binding::Bound(HASH.into())
}

/// A whole exchange with another implementation of the client.
fn exchange(password: &str, subject: Subject, binding: Binding, channel: ChannelBinding) -> Result<Proven, ScramFailure> {
    let mut client = ScramSha256::new(password.as_bytes(), channel);
    let first = ServerFirst::answer(client.message(), subject, binding)?;
    client.update(first.message.as_bytes()).expect("the client takes the salt");
    let proven = first.finish(client.message())?;
    client.finish(proven.server_final.as_bytes()).expect("the client takes the signature");
    Ok(proven)
}

fn refused(result: Result<impl Sized, ScramFailure>) -> String {
    match result {
        Err(ScramFailure::Refused(error)) => format!("{} {}", error.message, error.detail.unwrap_or_default()),
        Err(ScramFailure::WrongPassword) => "wrong password".into(),
        Ok(_) => "accepted".into(),
    }
}

#[test]
fn the_right_password_proves_itself_and_yields_the_client_key() {
    let subject = Subject::Known(verifier("pencil"));
    let Ok(proven) = exchange("pencil", subject, Binding::NotOffered, ChannelBinding::unsupported()) else { panic!("accepted") };
    assert_eq!(proven.keys, ScramKeys::derive(b"pencil", b"0123456789abcdef", ITERATIONS));
    let subject = Subject::Known(verifier("pencil"));
    assert!(exchange("pencil", subject, bound(), ChannelBinding::tls_server_end_point(HASH.to_vec())).is_ok());
    // A client that could bind, where we do not offer it.
    let subject = Subject::Known(verifier("pencil"));
    assert!(exchange("pencil", subject, Binding::NotOffered, ChannelBinding::unrequested()).is_ok());
}

#[test]
fn a_wrong_password_and_a_user_that_does_not_exist_look_alike() {
    let wrong = exchange("pen", Subject::Known(verifier("pencil")), Binding::NotOffered, ChannelBinding::unsupported());
    assert!(matches!(wrong, Err(ScramFailure::WrongPassword)));
    let nobody = exchange("pencil", Subject::Nobody(verifier("pencil")), Binding::NotOffered, ChannelBinding::unsupported());
    assert!(matches!(nobody, Err(ScramFailure::WrongPassword)), "even with the right proof");
}

#[test]
fn another_certificate_and_a_downgrade_are_noticed() {
    let known = || Subject::Known(verifier("pencil"));
    let other = exchange("pencil", known(), bound(), ChannelBinding::tls_server_end_point(vec![8; 32]));
    assert_eq!(refused(other), "SCRAM channel binding check failed ");
    let downgraded = exchange("pencil", known(), Binding::Declined, ChannelBinding::unrequested());
    assert!(refused(downgraded).starts_with("SCRAM channel binding negotiation error"));
    let forgot = exchange("pencil", known(), bound(), ChannelBinding::unsupported());
    assert!(refused(forgot).contains("does not include channel binding data"));
    let unasked = exchange("pencil", known(), Binding::Declined, ChannelBinding::tls_server_end_point(HASH.to_vec()));
    assert!(refused(unasked).contains("but the SCRAM message includes channel binding data"));
}

#[test]
fn malformed_first_messages_are_refused_in_postgresql_s_words() {
    let cases: [(&[u8], &str); 14] = [
        (b"", "malformed SCRAM message The message is empty."),
        (b"n", "malformed SCRAM message The message ends within its header."),
        (b"n,", "malformed SCRAM message The message ends within its header."),
        (b"n,,", "malformed SCRAM message The message does not name a user."),
        (b"n,,n=", "malformed SCRAM message The message has no nonce."),
        (b"n,,n=a,r=", "non-printable characters in SCRAM nonce"),
        (b"n,,n=a,r=a b", "non-printable characters in SCRAM nonce"),
        (b"n,,m=x,n=a,r=b", "client requires an unsupported SCRAM extension"),
        (b"n,a=admin,n=a,r=b", "client uses authorization identity, but it is not supported"),
        (b"x,,n=a,r=b", "malformed SCRAM message Unexpected channel-binding flag."),
        (b"p=tls-unique,,n=a,r=b", "malformed SCRAM message The client selected SCRAM-SHA-256 without"),
        (b"n,,n=a,r=b\0", "malformed SCRAM message Message length does not match input length."),
        (b"n,,n=\xff,r=b", "malformed SCRAM message The message is not UTF-8."),
        (b",,,,,,", "malformed SCRAM message Unexpected channel-binding flag."),
    ];
    for (message, expected) in cases {
        let text = refused(ServerFirst::answer(message, Subject::Known(verifier("x")), Binding::NotOffered));
        assert!(text.starts_with(expected), "{message:?} gave {text}");
    }
    let text = refused(ServerFirst::answer(b"p=tls-unique,,n=a,r=b", Subject::Known(verifier("x")), bound()));
    assert!(text.starts_with("unsupported SCRAM channel-binding type"), "{text}");
}

#[test]
fn malformed_final_messages_are_refused_in_postgresql_s_words() {
    let first = || {
        let subject = Subject::Known(verifier("x"));
        let first = ServerFirst::answer_with_nonce(b"n,,n=,r=ab", subject, Binding::NotOffered, "cd".into());
        first.unwrap_or_else(|_| panic!("well-formed"))
    };
    let zero = STANDARD.encode([0; 32]);
    let cases = [
        (String::new(), "malformed SCRAM message The message is empty."),
        ("c=biws,r=abcd".into(), "malformed SCRAM message The message has no proof."),
        (format!("r=abcd,p={zero}"), "malformed SCRAM message The message has no channel-binding attribute."),
        (format!("c=biws,p={zero}"), "malformed SCRAM message The message has no nonce."),
        (format!("c=eSws,r=abcd,p={zero}"), "unexpected SCRAM channel-binding attribute in client-final-message"),
        (format!("c=biws,r=ab,p={zero}"), "invalid SCRAM response Nonce does not match."),
        ("c=biws,r=abcd,p=AAAA".into(), "malformed SCRAM message Malformed proof in client-final-message."),
        ("c=biws,r=abcd,p=****".into(), "malformed SCRAM message Malformed proof in client-final-message."),
        (format!("c=biws,r=abcd,p={zero}"), "wrong password"),
    ];
    for (message, expected) in cases {
        let text = refused(first().finish(message.as_bytes()));
        assert!(text.starts_with(expected), "{message} gave {text}");
    }
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_refused(first in ".{0,60}", last in "(c=biws,r=[a-z]{0,9})?.{0,60}") {
        let mock = Subject::Known(verifier_without_work());
        if let Ok(answer) = ServerFirst::answer(first.as_bytes(), mock, Binding::NotOffered) {
            assert!(answer.finish(last.as_bytes()).is_err());
        }
    }
}

fn verifier_without_work() -> ScramVerifier {
    ScramVerifier { iterations: 1, salt: vec![1], stored_key: [1; 32], server_key: [2; 32] }
}
