//! Reading a shard's schema: what two servers have in common compares equal, every difference is named.

use std::time::Duration;

use shardgate::backend::catalog_reader::{self, Known, WhenHeld};
use shardgate::catalog::{Access, Catalog, Closure};
use shardgate::sql::body::SqlBodyReader;
use sqlx::{Connection, PgConnection};

use crate::support::Cluster;

const SCHEMA: &str = "
    CREATE EXTENSION citext; CREATE SCHEMA app;
    CREATE TYPE app.mood AS ENUM ('a', 'b'); CREATE DOMAIN positive AS int CHECK (value > 0);
    CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
    CREATE TABLE books (isbn text PRIMARY KEY, title text COLLATE \"C\", year int DEFAULT 3, mood app.mood, name citext, p positive, folded text COLLATE ci);
    CREATE TABLE orders (id bigserial PRIMARY KEY, isbn text REFERENCES books, at date NOT NULL, UNIQUE (isbn, id));
    CREATE UNIQUE INDEX orders_lower ON orders (lower(isbn)) WHERE id > 3;
    CREATE TABLE parted (a int, b int) PARTITION BY RANGE (a); CREATE TABLE parted1 PARTITION OF parted FOR VALUES FROM (1) TO (10);
    CREATE TABLE audit (x text);
    CREATE VIEW sums AS SELECT isbn, count(*) FROM orders GROUP BY 1;
    CREATE FUNCTION f() RETURNS bigint LANGUAGE sql AS 'select count(*) from books';
    CREATE FUNCTION g() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT count(*) FROM books; END;
    CREATE FUNCTION log() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$ BEGIN INSERT INTO audit VALUES (new.isbn); RETURN new; END $$;
    CREATE TRIGGER log BEFORE INSERT OR UPDATE ON books FOR EACH ROW WHEN (new.year > 2) EXECUTE FUNCTION log();
    ALTER TABLE books ENABLE ROW LEVEL SECURITY;
    CREATE POLICY reads_audit ON books USING (EXISTS (SELECT FROM audit WHERE x = isbn));
    CREATE OPERATOR === (LEFTARG = int, RIGHTARG = int, FUNCTION = int4eq);
    CREATE AGGREGATE total (int) (SFUNC = int4pl, STYPE = int);
    CREATE PROCEDURE nothing() LANGUAGE plpgsql AS 'BEGIN END';";

async fn read(cluster: &Cluster, shard: usize) -> Catalog {
    let mut connection = PgConnection::connect(&cluster.shard_url(shard)).await.expect("connect");
    let before: String = sqlx::query_scalar("SHOW search_path").fetch_one(&mut connection).await.unwrap();
    let catalog = catalog_reader::read(&mut connection, &mut Known::default(), WhenHeld::Wait(Duration::ZERO)).await.expect("read");
    let after: String = sqlx::query_scalar("SHOW search_path").fetch_one(&mut connection).await.unwrap();
    assert_eq!(before, after, "settings are left as they were");
    catalog
}

async fn run(cluster: &Cluster, shard: usize, sql: &str) {
    cluster.connect_shard(shard).await.batch_execute(sql).await.expect(sql);
}

#[tokio::test]
async fn alike_schemas_have_one_digest_and_differences_are_named() {
    let cluster = Cluster::start(2).await;
    for shard in 0..2 {
        run(&cluster, shard, SCHEMA).await;
    }
    // Other oids, other settings, rows and sequence positions do not matter.
    run(&cluster, 1, "CREATE TABLE gone (x int); DROP TABLE gone; INSERT INTO audit VALUES ('x'); SELECT nextval('orders_id_seq'); ALTER DATABASE shard1 SET search_path = app; ALTER DATABASE shard1 SET DateStyle = 'German'").await;
    let (here, there) = (read(&cluster, 0).await, read(&cluster, 1).await);
    assert_eq!(here.diff(&there), Vec::<String>::new());
    assert_eq!(here.digest, there.digest);

    run(&cluster, 1, "ALTER TABLE public.books ALTER title TYPE varchar(10); ALTER TYPE app.mood ADD VALUE 'c'; ALTER TABLE public.books DISABLE TRIGGER log").await;
    run(&cluster, 1, "ALTER TABLE public.orders DROP at; ALTER TABLE public.orders ADD at date NOT NULL; DROP VIEW public.sums; CREATE TABLE public.extra (x int)").await;
    run(&cluster, 1, "ALTER TABLE public.parted ADD c int; DROP INDEX public.orders_lower").await;
    let there = read(&cluster, 1).await;
    assert_ne!(here.digest, there.digest);
    let differences = here.diff(&there);
    for expected in [
        "column \"title\" of table \"public.books\" is text collate C here and character varying(10) there",
        "type \"app.mood\" is enum, ('a', 'b') here and enum, ('a', 'b', 'c') there",
        "trigger \"log\" of table \"public.books\" is defined differently here and there",
        "view \"public.sums\" exists here and is missing there",
        "table \"public.extra\" is missing here and exists there",
        "column \"c\" of table \"public.parted\" is missing here and exists there",
        "index \"orders_lower\" of table \"public.orders\" exists here and is missing there",
    ] {
        assert!(differences.iter().any(|difference| difference == expected), "{expected}\n{differences:#?}");
    }
}

#[tokio::test]
async fn what_routing_needs_is_read() {
    let cluster = Cluster::start(1).await;
    run(&cluster, 0, SCHEMA).await;
    let catalog = read(&cluster, 0).await;
    let path = ["public".to_owned()];
    let books = catalog.resolve(None, "books", &path).expect("books");
    assert_eq!(
        books.columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>(),
        ["isbn", "title", "year", "mood", "name", "p", "folded"]
    );
    assert!(books.column("title").unwrap().is_collation_c);
    assert!(!books.column("folded").unwrap().is_deterministic);
    assert!(books.has_row_security);
    assert_eq!(books.uniques.len(), 1);
    let orders = catalog.resolve(None, "orders", &path).expect("orders");
    assert_eq!(orders.foreign_keys[0].referenced, books.oid);
    let lower = orders.uniques.iter().find(|unique| unique.name == "orders_lower").expect("the index");
    assert!(lower.is_partial && !lower.is_constraint && lower.columns == [None]);
    let parted = catalog.resolve(None, "parted", &path).expect("parted");
    assert_eq!(parted.children.len(), 1);
    assert!(catalog.operator_schemas.is_empty(), "citext's operators take its own type: {:?}", catalog.operator_schemas);

    run(&cluster, 0, "CREATE FUNCTION odd(text, text) RETURNS bool LANGUAGE sql AS 'select true'; CREATE OPERATOR app.= (LEFTARG = text, RIGHTARG = text, FUNCTION = odd)").await;
    assert_eq!(read(&cluster, 0).await.operator_schemas, ["app"]);
}

#[tokio::test]
async fn closures_are_proven_from_what_the_server_knows() {
    let cluster = Cluster::start(1).await;
    run(&cluster, 0, SCHEMA).await;
    let catalog = read(&cluster, 0).await;
    let oid = |name: &str| catalog.relation_names[&("public".to_owned(), name.to_owned())];
    let (books, audit, orders) = (oid("books"), oid("audit"), oid("orders"));
    let function = |name: &str| catalog.function_names[name][0];
    let touched = |closure: &Closure| match closure {
        Closure::Known(references) => (references.reads.clone(), references.writes.clone()),
        Closure::Unknown(why) => panic!("{why}"),
    };
    let reader = &SqlBodyReader;
    let mut reads = vec![books, audit];
    reads.sort_unstable();
    for name in ["f", "g"] {
        assert_eq!(touched(&catalog.closure_of_function(function(name), reader)), (reads.clone(), vec![]), "{name}");
    }
    assert_eq!(touched(&catalog.closure_of_function(function("total"), reader)), (vec![], vec![]));
    // TRUNCATE ... CASCADE is a write, too.
    let mut written = vec![audit, orders];
    written.sort_unstable();
    assert_eq!(touched(&catalog.closure_of_relation(books, Access::Write, reader)), (vec![audit], written));
    assert_eq!(touched(&catalog.closure_of_relation(oid("sums"), Access::Read, reader)), (vec![orders], vec![]));
    assert_eq!(touched(&catalog.closure_of_relation(orders, Access::Write, reader)), (vec![], vec![]));
}
