//! A shard's URL, as any text: parts that hold no NUL, or an error that does not show the password.

#![no_main]

use libfuzzer_sys::fuzz_target;
use shardgate::config::ShardUrl;

fuzz_target!(|text: &str| {
    check(text);
    check(&format!("postgres://app:hunter2-hunter2@{text}"));
});

fn check(text: &str) {
    match ShardUrl::parse(text) {
        Ok(url) => {
            assert!(!url.host.is_empty() && !url.user.is_empty() && !url.database.is_empty());
            let parts = [&url.host, &url.user, &url.database];
            assert!(parts.iter().all(|part| !part.contains('\0')));
            if let Some(password) = &url.password {
                assert_eq!(format!("{password:?}"), if password.is_empty() { "" } else { "***" });
            }
        }
        Err(error) => assert!(!error.to_string().contains("hunter2-hunter2")),
    }
}
