//! Drivers and frameworks as applications use them: each program of `tests/drivers` over three shards, by TLS and with a password.
//!
//! The programs say what worked, line by line, and fail where an answer is not PostgreSQL's. What they tried is a table in the
//! documentation, which is made by this test.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{Connection, Executor, Row};

use crate::support::{Certificates, Cluster, Proxy, ProxyOptions, ProxyUser};

/// A program of `tests/drivers`; packages, and what they are called.
const PROGRAMS: &[(&str, &[(&str, &str)])] = &[
    ("psycopg3.py", &[("psycopg", "psycopg")]),
    ("psycopg2_.py", &[("psycopg2-binary", "psycopg2")]),
    ("asyncpg_.py", &[("asyncpg", "asyncpg")]),
    ("sqlalchemy_.py", &[("sqlalchemy", "SQLAlchemy"), ("alembic", "Alembic")]),
    ("django_.py", &[("django", "Django")]),
    ("pg.mjs", &[("pg", "node-postgres")]),
    ("postgres.mjs", &[("postgres", "postgres.js")]),
    ("knex.mjs", &[("knex", "Knex")]),
    ("drizzle.mjs", &[("drizzle-orm", "Drizzle")]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drivers_and_frameworks_work_over_several_shards() {
    let Some(packages) = packages() else { return };
    let cluster = Cluster::start(3).await;
    let certificates = Certificates::new();
    let files = certificates.issue("proxy", "localhost");
    let options = ProxyOptions {
        users: vec![ProxyUser { name: USER.to_owned(), password: Some(PASSWORD.to_owned()), admin: true }],
        settings: vec![
            ("listen.tls.mode", "require".to_owned()),
            ("listen.tls.cert", files.cert.display().to_string()),
            ("listen.tls.key", files.key.display().to_string()),
            ("auth.method", "scram-sha-256".to_owned()),
        ],
        ..ProxyOptions::default()
    };
    let proxy = Proxy::start(&cluster, options);
    let url = format!("postgresql://{USER}:{PASSWORD}@localhost:{}/app?sslmode=require", proxy.port());
    for shard in 0..3 {
        let add = format!("SELECT shardgate.add_shard('shard{shard}', '{}')", cluster.shard_url(shard));
        crate::support::psql_rows(&url, &add);
    }
    let mut table = String::from("| | what was tried |\n|---|---|\n");
    let mut failed = String::new();
    // One after the other: each is what two cores have to do.
    for (program, packages_of) in PROGRAMS {
        match run(&packages, program, &url).await {
            Ok(worked) => table.push_str(&format!("| {} | {} |\n", versions(packages_of), worked.join(", "))),
            Err(told) => failed.push_str(&format!("{program}:\n{told}\n")),
        }
    }
    let worked = by_sqlx(&url).await.expect("sqlx");
    table.push_str(&format!("| sqlx | {} |\n", worked.join(", ")));
    assert!(failed.is_empty(), "{failed}\n{}", proxy.log());
    assert!(!proxy.log().contains("panicked"), "{}", proxy.log());
    documented(&table);
}

const USER: &str = "ada";
const PASSWORD: &str = "an0therSecret";
const PATIENCE: Duration = Duration::from_secs(120);

/// Where the packages are; `None`: this machine has no Python or Node.js, which is a failure where skips are refused.
fn packages() -> Option<PathBuf> {
    let found = Command::new("sh").arg(root().join("scripts/drivers.sh")).stderr(Stdio::inherit()).output().expect("run sh");
    if found.status.success() {
        return Some(PathBuf::from(String::from_utf8_lossy(&found.stdout).trim()));
    }
    assert!(std::env::var_os("SHARDGATE_REFUSE_SKIPS").is_none(), "the drivers' packages are not there");
    println!("skipped: the drivers' packages are not there");
    None
}

async fn run(packages: &Path, program: &str, url: &str) -> Result<Vec<String>, String> {
    let mut command = match program.ends_with(".py") {
        true => {
            let mut command = tokio::process::Command::new("python3");
            command.arg(root().join("tests/drivers").join(program)).env("PYTHONPATH", packages.join("python"));
            command.env("PYTHONDONTWRITEBYTECODE", "1");
            command
        }
        false => {
            let mut command = tokio::process::Command::new("node");
            command.arg(packages.join("node").join(program));
            command
        }
    };
    let running = command.env("DRIVERS_URL", url).kill_on_drop(true).output();
    let output = tokio::time::timeout(PATIENCE, running).await.map_err(|_| "it does not end".to_owned())?.expect("run it");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() {
        true => Ok(told.lines().map(str::to_owned).collect()),
        false => Err(format!("{told}{}", String::from_utf8_lossy(&output.stderr))),
    }
}

async fn by_sqlx(url: &str) -> Result<Vec<&'static str>, sqlx::Error> {
    let mut connection = PgConnection::connect(url).await?;
    let table = "CREATE TABLE by_sqlx (tenant int NOT NULL, n int NOT NULL, name text, amount float8, doc jsonb, tags text[], \
                 PRIMARY KEY (tenant, n))";
    connection.execute(table).await?;
    connection.execute("SELECT shardgate.distribute_table('by_sqlx', 'tenant')").await?;
    let tags = vec!["x".to_owned(), "y\"".to_owned()];
    for tenant in 1..=30_i32 {
        let insert = sqlx::query("INSERT INTO by_sqlx VALUES ($1, 1, $2, $3, $4, $5)").bind(tenant).bind("naïve");
        let insert = insert.bind(f64::from(tenant)).bind(serde_json::json!({ "a": [tenant, null] })).bind(&tags);
        assert_eq!(insert.execute(&mut connection).await?.rows_affected(), 1);
    }
    let one = "SELECT name, amount, doc, tags FROM by_sqlx WHERE tenant = $1";
    for tenant in 1..=30_i32 {
        let row = sqlx::query(one).bind(tenant).fetch_one(&mut connection).await?;
        assert_eq!((row.get::<&str, _>(0), row.get::<f64, _>(1)), ("naïve", f64::from(tenant)));
        assert_eq!(
            (row.get::<serde_json::Value, _>(2)["a"][0].as_i64(), row.get::<Vec<String>, _>(3)),
            (Some(tenant.into()), tags.clone())
        );
    }
    let mut copy = connection.copy_in_raw("COPY by_sqlx (tenant, n) FROM STDIN").await?;
    copy.send((1..=30).map(|tenant| format!("{tenant}\t2\n")).collect::<String>().as_bytes()).await?;
    assert_eq!(copy.finish().await?, 30);
    let mut transaction = connection.begin().await?;
    assert_eq!(
        sqlx::query("UPDATE by_sqlx SET amount = 1 WHERE n = $1").bind(2).execute(&mut *transaction).await?.rows_affected(),
        30
    );
    let mut inner = transaction.begin().await?;
    let twice = inner.execute("INSERT INTO by_sqlx (tenant, n) VALUES (7, 1)").await.expect_err("the same key twice");
    assert_eq!(twice.as_database_error().and_then(|error| error.code()).as_deref(), Some("23505"));
    inner.rollback().await?;
    transaction.commit().await?;
    let sum: f64 = sqlx::query_scalar("SELECT sum(amount) FROM by_sqlx").fetch_one(&mut connection).await?;
    assert_eq!(sum, 495.0);
    connection.close().await?;
    Ok(vec!["connect", "types in binary", "prepared statements", "COPY", "transactions", "errors"])
}

fn versions(packages: &[(&str, &str)]) -> String {
    let pinned = pinned();
    let versions = packages.iter().map(|(package, shown)| format!("{shown} {}", pinned[*package]));
    versions.collect::<Vec<_>>().join(", ")
}

fn pinned() -> BTreeMap<String, String> {
    let python = include_str!("../drivers/requirements.txt").lines().filter_map(|line| line.split_once("=="));
    let mut found: BTreeMap<String, String> = python.map(|(name, version)| (name.to_owned(), version.to_owned())).collect();
    let node: serde_json::Value = serde_json::from_str(include_str!("../drivers/package.json")).expect("JSON");
    let node = node["dependencies"].as_object().expect("dependencies");
    found.extend(node.iter().map(|(name, version)| (name.clone(), version.as_str().unwrap_or_default().to_owned())));
    found
}

/// `UPDATE_DOCS=1` writes it.
fn documented(table: &str) {
    let path = root().join("docs/sql-support.md");
    let page = std::fs::read_to_string(&path).expect("the page");
    let (before, rest) = page.split_once(LIST_BEGIN).expect("the beginning of the table");
    let (listed, after) = rest.split_once(LIST_END).expect("the end of the table");
    let expected = format!("\n\n{table}\n");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, [before, LIST_BEGIN, &expected, LIST_END, after].concat()).expect("the page is written");
    } else {
        assert_eq!(listed, expected, "docs/sql-support.md differs: UPDATE_DOCS=1 cargo test --test it drivers");
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

const LIST_BEGIN: &str = "<!-- drivers: made by tests/it/drivers.rs; UPDATE_DOCS=1 cargo test --test it drivers -->";
const LIST_END: &str = "<!-- /drivers -->";
