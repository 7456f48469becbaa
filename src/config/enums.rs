//! Settings that are one word out of a few. Their names in the file are PostgreSQL's where it has one.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An enum whose variants are words of the file; another word is refused with the list of those allowed.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
        pub enum $name { $($(#[$variant_meta])* $variant,)+ }

        impl $name {
            /// The word in the file.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                let known = [$(Self::$variant),+];
                known.into_iter().find(|value| value.as_str() == text).ok_or_else(|| {
                    let words = known.map(Self::as_str).join(", ");
                    serde::de::Error::custom(format!("{text:?} is not one of {words}"))
                })
            }
        }
    };
}

words! {
    /// Whether clients may, or must, use TLS.
    TlsMode {
        /// SSLRequest is answered `N`.
        #[default]
        Off = "off",
        /// The client decides.
        Allow = "allow",
        /// A startup packet outside TLS is refused; cancel requests are not.
        Require = "require",
    }
}

words! {
    /// How long a session keeps a backend.
    PoolMode {
        #[default]
        Transaction = "transaction",
        Session = "session",
    }
}

words! {
    /// How clients prove who they are.
    AuthMethod {
        #[default]
        ScramSha256 = "scram-sha-256",
        /// Anyone who can connect, under any name; on loopback addresses only.
        Trust = "trust",
    }
}

words! {
    /// As whom the proxy logs in to a shard.
    BackendUser {
        /// As the client's user, with its password or the key taken from its proof.
        #[default]
        Client = "client",
        /// As the user of the shard's URL, for every client.
        Shard = "shard",
    }
}

words! {
    /// What happens when a transaction writes on a second shard.
    CrossShardWrites {
        #[default]
        TwoPhaseCommit = "2pc",
        Refuse = "refuse",
    }
}

words! {
    /// What happens when a transaction at REPEATABLE READ or SERIALIZABLE touches a second shard.
    CrossShardIsolation {
        #[default]
        Refuse = "refuse",
        PerShard = "per_shard",
    }
}

words! {
    /// The form of a log line.
    LogFormat {
        #[default]
        Text = "text",
        Json = "json",
    }
}
