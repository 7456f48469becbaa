//! The hash of a shard key is PostgreSQL's own: random keys of every type, hashed here and by a real server; the SQL expression
//! that a shard evaluates is the same hash; and the vectors pinned in `tests/golden` are still what the server says.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use shardgate::shard_key::{Key, KeyDatum, KeyType};
use tokio_postgres::Client;

use crate::support::Cluster;

const VALUES_PER_TYPE: usize = 2_000;

#[tokio::test]
async fn random_keys_hash_as_on_the_server() {
    let cluster = Cluster::start(1).await;
    let client = utc_client(&cluster).await;
    let seed = rand::random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    for key_type in KeyType::ALL {
        let data: Vec<KeyDatum> = (0..VALUES_PER_TYPE).map(|_| random_datum(key_type, &mut random)).collect();
        for hash_seed in [0, 1, -1, random.random::<i64>()] {
            let expected = server_hashes(&client, key_type, &data, hash_seed).await;
            for (datum, (operator_class, expression)) in data.iter().zip(expected) {
                let hash = datum.hash_with_seed(hash_seed.cast_unsigned()).cast_signed();
                assert_eq!(hash, operator_class, "{key_type:?} {datum:?} seed {hash_seed}");
                assert_eq!(hash, expression, "{key_type:?} {datum:?} seed {hash_seed}, hash_sql");
            }
        }
    }
}

#[tokio::test]
async fn several_columns_chain_the_seed_on_the_server_too() {
    let cluster = Cluster::start(1).await;
    let client = utc_client(&cluster).await;
    client.batch_execute("CREATE TABLE t (a int, b varchar(20), c uuid)").await.unwrap();
    let uuid = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
    client.execute(&format!("INSERT INTO t VALUES (-7, 'Zürich', '{uuid}')"), &[]).await.unwrap();
    let types = [KeyType::Int4, KeyType::Text, KeyType::Uuid];
    let chained =
        types.iter().zip(["a", "b", "c"]).fold("0".to_owned(), |seed, (key_type, column)| key_type.hash_sql(column, &seed));
    let hash: i64 = client.query_one(&format!("SELECT {chained} FROM t"), &[]).await.unwrap().get(0);
    assert_eq!(Key::parse(&types, &["-7", "Zürich", uuid]).unwrap().hash(), hash);
}

#[tokio::test]
async fn the_hash_expression_is_accepted_in_a_row_filter() {
    let cluster = Cluster::start(1).await;
    let client = utc_client(&cluster).await;
    for (index, key_type) in KeyType::ALL.into_iter().enumerate() {
        let sql = format!(
            "CREATE TABLE t{index} (k {} PRIMARY KEY); CREATE PUBLICATION p{index} FOR TABLE t{index} WHERE ({} BETWEEN -5 AND 5)",
            key_type.name(),
            key_type.hash_sql("k", "0"),
        );
        client.batch_execute(&sql).await.unwrap_or_else(|error| panic!("{key_type:?}: {error:?}"));
    }
}

#[tokio::test]
async fn the_pinned_vectors_are_what_the_server_says() {
    let cluster = Cluster::start(1).await;
    let client = utc_client(&cluster).await;
    let vectors = include_str!("../golden/shard_key_hash.txt").lines().filter(|line| !line.starts_with('#'));
    let mut checked = 0;
    for line in vectors {
        let [type_name, seed, text, hash] = line.split('\t').collect::<Vec<_>>().try_into().expect("four fields");
        let key_type = KeyType::from_name(type_name).expect("a key type");
        let datum = KeyDatum::parse(key_type, text).unwrap();
        let server = server_hashes(&client, key_type, &[datum], seed.parse().unwrap()).await;
        assert_eq!(server, [(hash.parse().unwrap(), hash.parse().unwrap())], "{line}");
        checked += 1;
    }
    assert!(checked >= 50, "only {checked} vectors");
}

async fn utc_client(cluster: &Cluster) -> Client {
    let client = cluster.connect_shard(0).await;
    client.batch_execute("SET TimeZone = 'UTC'; SET DateStyle = 'ISO'").await.unwrap();
    client
}

/// The hash by the type's default operator class (a record of one column hashes as the column) and by our SQL expression.
async fn server_hashes(client: &Client, key_type: KeyType, data: &[KeyDatum], seed: i64) -> Vec<(i64, i64)> {
    let texts: Vec<String> = data.iter().map(|datum| datum.to_text(key_type)).collect();
    // A cast to "character" alone would cut to one character.
    let type_name = if key_type == KeyType::Bpchar { "bpchar" } else { key_type.name() };
    let sql = format!(
        "SELECT hash_record_extended(ROW(v), $2), {} FROM (SELECT i, t::{type_name} AS v FROM unnest($1::text[]) WITH ORDINALITY AS u (t, i) OFFSET 0) s ORDER BY i",
        key_type.hash_sql("v", "$2"),
    );
    let rows = client.query(&sql, &[&texts, &seed]).await.unwrap();
    assert_eq!(rows.len(), data.len());
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

fn random_datum(key_type: KeyType, random: &mut StdRng) -> KeyDatum {
    // Few bits as often as many.
    let bits = random.random_range(0..64);
    let wide = random.random::<i64>() >> bits;
    match key_type {
        KeyType::Int2 => KeyDatum::Int(i64::from(random.random::<i16>())),
        KeyType::Int4 => KeyDatum::Int(i64::from(random.random::<i32>() >> (bits / 2))),
        KeyType::Int8 => KeyDatum::Int(wide),
        KeyType::Text => KeyDatum::Text(random_text(random).into()),
        KeyType::Bpchar => KeyDatum::Text(random_text(random).trim_end_matches(' ').into()),
        KeyType::Uuid => KeyDatum::Uuid(random.random()),
        KeyType::Date if bits == 0 => KeyDatum::Date(if wide < 0 { i32::MIN } else { i32::MAX }),
        KeyType::Date => KeyDatum::Date(random.random_range(-2_451_545..2_145_031_949) >> (bits / 2)),
        KeyType::Timestamp | KeyType::Timestamptz if bits == 0 => KeyDatum::Timestamp(if wide < 0 { i64::MIN } else { i64::MAX }),
        KeyType::Timestamp | KeyType::Timestamptz => {
            KeyDatum::Timestamp(random.random_range(-211_813_488_000_000_000..9_223_371_331_200_000_000) >> bits)
        }
        KeyType::Bool => KeyDatum::Bool(random.random()),
        KeyType::Numeric if bits == 0 => read_numeric(["NaN", "Infinity", "-Infinity", "0"][usize::from(wide < 0) * 2]),
        KeyType::Numeric => {
            let fraction = "0".repeat(bits % 7) + &random.random_range(0..1_000_000).to_string();
            let exponent = ["", "", "e-30", "e30", "e3"][bits % 5];
            read_numeric(&format!("{wide}.{fraction}{exponent}"))
        }
        KeyType::Bytea => {
            let length = random.random_range(0..50);
            KeyDatum::Bytea((0..length).map(|_| random.random()).collect())
        }
    }
}

fn read_numeric(text: &str) -> KeyDatum {
    KeyDatum::parse(KeyType::Numeric, text).expect("a number")
}

fn random_text(random: &mut StdRng) -> String {
    const ALPHABET: [char; 12] = ['a', 'Z', '0', '9', ' ', '-', '\'', '\\', 'é', '漢', '😀', '\u{7f}'];
    let length = random.random_range(0..40);
    (0..length).map(|_| ALPHABET[random.random_range(0..ALPHABET.len())]).collect()
}
