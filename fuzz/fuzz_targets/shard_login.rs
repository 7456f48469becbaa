//! A shard's side of a login, as any bytes: a greeting or an error, whatever it asks for.

#![no_main]

use futures::executor::block_on;
use libfuzzer_sys::fuzz_target;
use shardgate::auth::{BackendCredentials, BackendSecret, LoginError, login_over};
use shardgate::config::Secret;

fuzz_target!(|input: (bool, bool, &[u8])| {
    let (is_tls, has_password, bytes) = input;
    let secret = if has_password { BackendSecret::Password(Secret::new("secret")) } else { BackendSecret::None };
    let credentials = BackendCredentials { user: "app".into(), secret };
    let mut stream = tokio::io::join(bytes, tokio::io::sink());
    match block_on(login_over(&mut stream, is_tls.then(|| vec![7; 32]), &credentials, "app", &[])) {
        Ok(greeting) => {
            // Names are unique: a later value took the place of the earlier one.
            let mut names: Vec<_> = greeting.parameter_status.iter().map(|(name, _)| name).collect();
            names.sort_unstable();
            assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
        }
        Err(LoginError::Shard(error)) => {
            assert!(error.fields().count() <= error.body().len());
            assert!(error.to_string().len() <= error.body().len() * 3 + 16);
        }
        Err(other) => assert!(!other.to_string().contains("secret")),
    }
});
