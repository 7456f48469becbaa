//! Drivers and frameworks as applications use them: each program of `tests/drivers` over three shards, by TLS and with a password.
//!
//! The programs say what worked, line by line, and fail where an answer is not PostgreSQL's. Some run on one plain PostgreSQL first, and
//! print the same there. What they tried is a table in the documentation, which is made by this test.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{Connection, Executor, Row};
use tempfile::TempDir;

use crate::support::{Certificates, Cluster, Proxy, ProxyOptions, ProxyUser};

/// A program of `tests/drivers`; packages, and what they are called. Without a version: the system's package, or none.
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
    ("prisma.mjs", &[("", "the SQL of Prisma, by node-postgres")]),
    ("Pgjdbc.java", &[("", "pgjdbc, of Debian's packages")]),
    ("Flyway.java", &[("", "the SQL of Flyway, by pgjdbc")]),
    ("Liquibase.java", &[("", "the SQL of Liquibase, by pgjdbc")]),
    ("ruby_pg.rb", &[("", "ruby-pg, of Debian's packages")]),
    ("active_record.rb", &[("", "ActiveRecord, of Debian's packages")]),
];
/// These run on plain PostgreSQL too.
const COMPARED: &[&str] = &["prisma.mjs", "Pgjdbc.java", "Flyway.java", "Liquibase.java", "ruby_pg.rb", "active_record.rb"];
/// What the programs call to distribute tables, on a plain PostgreSQL.
const STAND_INS: &str = "CREATE SCHEMA shardgate;
    CREATE FUNCTION shardgate.distribute_table(text, text) RETURNS void LANGUAGE sql AS '';
    CREATE FUNCTION shardgate.distribute_tables(jsonb) RETURNS void LANGUAGE sql AS '';
    CREATE FUNCTION shardgate.reference_table(text) RETURNS void LANGUAGE sql AS ''";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drivers_and_frameworks_work_over_several_shards() {
    let Some(packages) = packages() else { return };
    let java = compiled();
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
        let name = versions(packages_of);
        let Some(command) = command(&packages, java.as_ref(), program) else {
            assert!(std::env::var_os("SHARDGATE_REFUSE_SKIPS").is_none(), "{program}: its packages are not there");
            println!("skipped: {program}: its packages are not there");
            table.push_str(&listed_row(&name));
            continue;
        };
        let ran = match COMPARED.contains(program) {
            true => compare(&cluster, command, &url).await,
            false => run(command, &url).await,
        };
        match ran {
            Ok(worked) => table.push_str(&format!("| {name} | {} |\n", worked.join(", "))),
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
const PATIENCE: Duration = Duration::from_secs(300);
/// Debian's packages ruby-activerecord and ruby-pg are for this one.
const RUBY: &str = "/usr/bin/ruby";
/// Debian's package libpostgresql-jdbc-java.
const PGJDBC: &str = "/usr/share/java/postgresql.jar";

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

/// The programs for Java, compiled; `None`: this machine has no compiler or no driver.
fn compiled() -> Option<TempDir> {
    let directory = tempfile::tempdir().expect("a directory");
    let listed = std::fs::read_dir(root().join("tests/drivers")).expect("the programs");
    let programs =
        listed.map(|entry| entry.expect("a program").path()).filter(|path| path.extension().is_some_and(|end| end == "java"));
    let mut javac = Command::new("javac");
    javac.args(["-cp", PGJDBC, "-d"]).arg(directory.path()).args(programs);
    let compiled = Path::new(PGJDBC).exists().then(|| javac.output().ok()).flatten()?;
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    Some(directory)
}

/// What runs a program; `None`: this machine lacks what it needs.
fn command(packages: &Path, java: Option<&TempDir>, program: &str) -> Option<Vec<String>> {
    let source = root().join("tests/drivers").join(program);
    let (name, kind) = program.rsplit_once('.').expect("its kind");
    let words = match kind {
        "py" => vec!["python3".to_owned(), source.display().to_string()],
        "mjs" => vec!["node".to_owned(), packages.join("node").join(program).display().to_string()],
        "java" => {
            let classes = format!("{}:{PGJDBC}", java?.path().display());
            vec!["java".to_owned(), "-XX:TieredStopAtLevel=1".to_owned(), "-cp".to_owned(), classes, name.to_owned()]
        }
        _ => {
            let needs = ["-rlogger", "-ractive_record", "-rpg", "-e", ""];
            let is_there = Command::new(RUBY).args(needs).output().is_ok_and(|output| output.status.success());
            is_there.then(|| vec![RUBY.to_owned(), source.display().to_string()])?
        }
    };
    let python = format!("PYTHONPATH={}", packages.join("python").display());
    Some([vec!["env".to_owned(), python, "PYTHONDONTWRITEBYTECODE=1".to_owned()], words].concat())
}

async fn run(command: Vec<String>, url: &str) -> Result<Vec<String>, String> {
    let mut running = tokio::process::Command::new(&command[0]);
    let running = running.args(&command[1..]).env("DRIVERS_URL", url).kill_on_drop(true).output();
    let output = tokio::time::timeout(PATIENCE, running).await.map_err(|_| "it does not end".to_owned())?.expect("run it");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() {
        true => Ok(told.lines().map(str::to_owned).collect()),
        false => Err(format!("{told}{}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// On a plain PostgreSQL, then through the proxy. Lines that begin with `=` are answers.
async fn compare(cluster: &Cluster, command: Vec<String>, url: &str) -> Result<Vec<String>, String> {
    let direct = cluster.connect_shard(0).await;
    direct.batch_execute("DROP DATABASE IF EXISTS app WITH (FORCE)").await.expect("drop a database");
    cluster.create_database("app").await;
    let plain = cluster.url_on_shard(0, "app");
    crate::support::connect(&plain).await.batch_execute(STAND_INS).await.expect("stand-ins");
    let port = cluster.shard_server(0).port();
    let alone = run(command.clone(), &format!("postgresql://postgres:none@127.0.0.1:{port}/app?sslmode=disable")).await;
    let (expected, found) = (alone.map_err(|told| format!("on a plain PostgreSQL:\n{told}"))?, run(command, url).await?);
    let other = expected.iter().zip(&found).find(|(expected, found)| expected != found);
    match other {
        Some((expected, found)) => Err(format!("{found}\nPostgreSQL answers\n{expected}\n")),
        None if expected.len() != found.len() => Err(format!("{} lines of {}", found.len(), expected.len())),
        None => Ok(found.into_iter().filter(|line| !line.starts_with('=')).collect()),
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
    let versions = packages.iter().map(|(package, shown)| match package.is_empty() {
        true => (*shown).to_owned(),
        false => format!("{shown} {}", pinned[*package]),
    });
    versions.collect::<Vec<_>>().join(", ")
}

/// As the documentation has it.
fn listed_row(name: &str) -> String {
    let page = std::fs::read_to_string(root().join("docs/sql-support.md")).expect("the page");
    let row = page.lines().find(|line| line.starts_with(&format!("| {name} |")));
    row.map(|row| format!("{row}\n")).unwrap_or_default()
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
