//! Plans as text: the statements in their order, each behind its kind, with what is weaker afterwards on a line of its own.

use std::fmt::Write;
use std::sync::Arc;

use serde_json::Value;

use super::facts::{Facts, Storage, User, UserKind};
use super::{Losses, Schema, wishes};
use crate::catalog::{
    Catalog, Column, ForeignKey, ForeignKeyAction, ObjectName, Oid, Relation, RelationKind, Unique, quoted_identifier, shown_name,
};
use crate::declare::Caller;
use crate::shardmap::MapSnapshot;

/// A schema that grows by what is declared.
#[derive(Default)]
struct Fixture {
    catalog: Catalog,
    facts: Facts,
}

impl Fixture {
    /// `columns`: `id int8!`; `!`: NOT NULL, `+`: an identity column.
    fn table(&mut self, schema: &str, name: &str, columns: &[&str]) -> Oid {
        let oid = 10_000 + Oid::try_from(self.catalog.relations.len()).expect("few relations");
        let relation = Relation {
            columns: columns.iter().zip(1..).map(|(text, attnum)| column(text, attnum)).collect(),
            ..Relation::bare(oid, schema, name, RelationKind::Table)
        };
        self.catalog.relation_names.insert((schema.to_owned(), name.to_owned()), oid);
        self.catalog.relations.insert(oid, relation);
        oid
    }

    /// A table of the schema `public` with a primary key `id` that refers to `tenants` by `tenant`, and has these columns besides.
    fn of_tenant(&mut self, tenants: Oid, name: &str, columns: &[&str]) -> Oid {
        let columns: Vec<&str> = ["id int8!", "tenant int8!"].into_iter().chain(columns.iter().copied()).collect();
        let table = self.table("public", name, &columns);
        self.unique(table, &format!("{name}_pkey"), "PRIMARY KEY (id)", &["id"]);
        self.foreign_key(table, &["tenant"], tenants, &["id"], "");
        table
    }

    /// `tenants` of the schema `public`, by `id`.
    fn tenants(&mut self) -> Oid {
        let tenants = self.table("public", "tenants", &["id int8!"]);
        self.unique(tenants, "tenants_pkey", "PRIMARY KEY (id)", &["id"]);
        tenants
    }

    /// `text` as PostgreSQL prints it; of the columns an empty name stands for what is not compared by `=`.
    fn unique(&mut self, table: Oid, name: &str, text: &str, columns: &[&str]) {
        let is_constraint = !text.starts_with("CREATE UNIQUE INDEX ");
        let part = if is_constraint { "constraint" } else { "index" };
        self.define(table, part, name, text);
        self.catalog.relations.get_mut(&table).expect("declared").uniques.push(Unique {
            name: name.to_owned(),
            is_primary: text.starts_with("PRIMARY KEY "),
            is_exclusion: text.starts_with("EXCLUDE "),
            is_constraint,
            columns: columns.iter().map(|column| (!column.is_empty()).then(|| (*column).to_owned())).collect(),
            is_partial: text.contains(" WHERE "),
        });
    }

    /// Named as PostgreSQL names it.
    fn foreign_key(&mut self, table: Oid, columns: &[&str], to: Oid, referenced: &[&str], options: &str) {
        let referred = self.catalog.relations.get(&to).expect("declared");
        let text = format!(
            "FOREIGN KEY ({}) REFERENCES {}({}){options}",
            printed(columns),
            shown_name(&referred.schema, &referred.name),
            printed(referenced)
        );
        let relation = self.catalog.relations.get_mut(&table).expect("declared");
        let name = format!("{}_{}_fkey", relation.name, columns.join("_"));
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
        relation.foreign_keys.push(ForeignKey {
            name: name.clone(),
            columns: owned(columns),
            referenced: to,
            referenced_columns: owned(referenced),
            on_delete: if options.contains("ON DELETE SET NULL") {
                ForeignKeyAction::SetsNull
            } else if options.contains("ON DELETE CASCADE") {
                ForeignKeyAction::Cascades
            } else {
                ForeignKeyAction::Looks
            },
            on_update: ForeignKeyAction::Looks,
            columns_set_on_delete: Vec::new(),
        });
        self.define(table, "constraint", &name, &text);
    }

    /// A partition with all that its parent has.
    fn partition(&mut self, of: Oid, name: &str) -> Oid {
        let made = self.table("public", name, &[]);
        let parent = self.catalog.relations.get_mut(&of).expect("declared");
        parent.kind = RelationKind::PartitionedTable;
        parent.children.push(made);
        let (columns, mut uniques, foreign_keys) = (parent.columns.clone(), parent.uniques.clone(), parent.foreign_keys.clone());
        let whole = parent.whole();
        for unique in &mut uniques {
            unique.name = format!("{name}_{}", unique.name);
        }
        for foreign_key in &foreign_keys {
            let object = ObjectName::part_of(whole.as_str(), "constraint", foreign_key.name.as_str());
            let text = self.catalog.definitions.get(&object).expect("defined").to_owned();
            self.define(made, "constraint", &foreign_key.name, &text);
        }
        let partition = self.catalog.relations.get_mut(&made).expect("declared");
        partition.parents.push(of);
        (partition.columns, partition.uniques, partition.foreign_keys) = (columns, uniques, foreign_keys);
        made
    }

    fn view(&mut self, name: &str, kind: RelationKind, query: &str, columns: &[&str]) -> Oid {
        let view = self.table("public", name, columns);
        let made = self.catalog.relations.get_mut(&view).expect("declared");
        (made.kind, made.view_definition) = (kind, Some(query.to_owned()));
        view
    }

    fn define(&mut self, table: Oid, part: &'static str, name: &str, text: &str) {
        let whole = self.catalog.relations.get(&table).expect("declared").whole();
        self.catalog.definitions.insert(ObjectName::part_of(whole, part, name), text);
    }

    fn plan(&self, keys: &str) -> (String, Losses) {
        let path = vec!["public".to_owned()];
        let caller = Caller {
            user: "o".to_owned(),
            is_admin: true,
            search_path: path.clone(),
            catalog: Arc::default(),
            stop: Default::default(),
        };
        let schema =
            Schema { catalog: Arc::new(self.catalog.clone()), map: MapSnapshot::default(), facts: self.facts.clone(), path };
        let keys: Value = serde_json::from_str(keys).expect("JSON");
        let wishes = wishes(&schema.catalog, &caller, &keys, &[]).expect("tables and their keys");
        let planned = schema.plan(&wishes);
        let mut text = String::new();
        for obstacle in &planned.obstacles {
            writeln!(text, "obstacle: {} {}", obstacle.what, obstacle.remedy).expect("a text");
        }
        for row in &planned.rows {
            writeln!(text, "{}: {}", row.kind, row.statement.as_deref().unwrap_or_default()).expect("a text");
            if let Some(warning) = &row.warning {
                writeln!(text, "! {warning}").expect("a text");
            }
        }
        (text, planned.losses)
    }
}

fn column(text: &str, attnum: i16) -> Column {
    let (name, type_name) = text.rsplit_once(' ').expect("a name and a type");
    let (type_oid, printed) = match type_name.trim_end_matches(['!', '+']) {
        "int8" => (20, "bigint"),
        "text" => (25, "text"),
        "date" => (1082, "date"),
        "bool" => (16, "boolean"),
        "int8range" => (3926, "int8range"),
        other => panic!("of what type is {other}?"),
    };
    Column {
        name: name.to_owned(),
        attnum,
        type_oid,
        type_name: printed.to_owned(),
        typmod: -1,
        is_not_null: type_name.contains('!'),
        is_deterministic: true,
        is_collation_c: false,
        collation: None,
        default: None,
        is_generated: false,
        identity: type_name.contains('+').then_some('d'),
    }
}

/// Names between parentheses, as PostgreSQL prints them.
fn printed(names: &[&str]) -> String {
    let is_plain = |name: &str| name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_');
    let printed = |name: &&str| if is_plain(name) { (*name).to_owned() } else { quoted_identifier(name) };
    names.iter().map(printed).collect::<Vec<_>>().join(", ")
}

#[track_caller]
fn assert_lines(text: &str, expected: &[&str]) {
    assert_eq!(text.lines().collect::<Vec<_>>(), expected, "{text}");
}

#[test]
fn a_key_of_two_columns_is_taken_along_as_a_whole() {
    let mut fixture = Fixture::default();
    let accounts = fixture.table("public", "accounts", &["region text!", "id int8!"]);
    fixture.unique(accounts, "accounts_pkey", "PRIMARY KEY (region, id)", &["region", "id"]);
    let invoices = fixture.table("public", "invoices", &["id int8!", "region text!", "account int8!"]);
    fixture.unique(invoices, "invoices_pkey", "PRIMARY KEY (id)", &["id"]);
    fixture.foreign_key(invoices, &["region", "account"], accounts, &["region", "id"], "");
    let lines = fixture.table("public", "lines", &["id int8!", "invoice int8!"]);
    fixture.unique(lines, "lines_pkey", "PRIMARY KEY (id)", &["id"]);
    fixture.foreign_key(lines, &["invoice"], invoices, &["id"], "");
    let (text, losses) = fixture.plan(r#"{"accounts": "region, id"}"#);
    let weaker = r#"! "id" is unique within the same "region", "account" only, not in the whole table any more; ON CONFLICT has to name "region", "account", too."#;
    assert_lines(
        &text,
        &[
            "transaction: BEGIN;",
            r#"drop foreign keys: ALTER TABLE "public"."lines" DROP CONSTRAINT "lines_invoice_fkey";"#,
            r#"add column: ALTER TABLE "public"."lines" ADD COLUMN "region" pg_catalog.text, ADD COLUMN "account" bigint;"#,
            r#"! INSERT has to give "region", "account" from now on: the proxy finds the row's shard by it."#,
            r#"fill column: UPDATE "public"."lines" AS own SET "region" = referred."region", "account" = referred."account" FROM "public"."invoices" AS referred WHERE own."invoice" = referred."id";"#,
            r#"keys: ALTER TABLE "public"."invoices" DROP CONSTRAINT "invoices_pkey", ADD CONSTRAINT "invoices_pkey" PRIMARY KEY (id, "region", "account");"#,
            weaker,
            r#"keys: ALTER TABLE "public"."lines" ALTER COLUMN "region" SET NOT NULL, ALTER COLUMN "account" SET NOT NULL, DROP CONSTRAINT "lines_pkey", ADD CONSTRAINT "lines_pkey" PRIMARY KEY (id, "region", "account");"#,
            weaker,
            r#"add foreign keys: ALTER TABLE "public"."lines" ADD CONSTRAINT "lines_invoice_fkey" FOREIGN KEY (invoice, "region", "account") REFERENCES public.invoices(id, "region", "account");"#,
            "transaction: COMMIT;",
            r#"distribute: SELECT shardgate.distribute_tables('{"public.accounts": "region, id", "public.invoices": "region, account", "public.lines": "region, account"}');"#,
        ],
    );
    assert_eq!(losses, Losses { foreign_keys: 0, uniques: 2 });
}

#[test]
fn a_table_that_refers_to_itself_does_so_within_its_key() {
    let mut fixture = Fixture::default();
    let tenants = fixture.tenants();
    let categories = fixture.of_tenant(tenants, "categories", &["parent int8"]);
    fixture.foreign_key(categories, &["parent"], categories, &["id"], " ON DELETE CASCADE");
    let (text, _) = fixture.plan(r#"{"tenants": "id"}"#);
    assert_lines(
        &text,
        &[
            "transaction: BEGIN;",
            r#"drop foreign keys: ALTER TABLE "public"."categories" DROP CONSTRAINT "categories_parent_fkey";"#,
            r#"keys: ALTER TABLE "public"."categories" DROP CONSTRAINT "categories_pkey", ADD CONSTRAINT "categories_pkey" PRIMARY KEY (id, "tenant");"#,
            r#"! "id" is unique within the same "tenant" only, not in the whole table any more; ON CONFLICT has to name "tenant", too."#,
            r#"add foreign keys: ALTER TABLE "public"."categories" ADD CONSTRAINT "categories_parent_fkey" FOREIGN KEY (parent, "tenant") REFERENCES public.categories(id, "tenant") ON DELETE CASCADE;"#,
            "transaction: COMMIT;",
            r#"distribute: SELECT shardgate.distribute_tables('{"public.tenants": "id", "public.categories": "tenant"}');"#,
        ],
    );
}

#[test]
fn partitions_follow_their_parent_and_keep_what_is_their_own() {
    let mut fixture = Fixture::default();
    let tenants = fixture.tenants();
    let documents = fixture.of_tenant(tenants, "documents", &[]);
    let events = fixture.table("public", "events", &["at date!", "document int8!"]);
    fixture.unique(events, "events_pkey", "PRIMARY KEY (document, at)", &["document", "at"]);
    fixture.foreign_key(events, &["document"], documents, &["id"], "");
    let partition = fixture.partition(events, "events_one");
    let own = "CREATE UNIQUE INDEX events_once ON public.events_one USING btree (document)";
    fixture.unique(partition, "events_once", own, &["document"]);
    let (text, losses) = fixture.plan(r#"{"tenants": "id"}"#);
    assert_lines(
        &text,
        &[
            "transaction: BEGIN;",
            r#"drop foreign keys: ALTER TABLE "public"."events" DROP CONSTRAINT "events_document_fkey";"#,
            r#"add column: ALTER TABLE "public"."events" ADD COLUMN "tenant" bigint;"#,
            r#"! INSERT has to give "tenant" from now on: the proxy finds the row's shard by it."#,
            r#"fill column: UPDATE "public"."events" AS own SET "tenant" = referred."tenant" FROM "public"."documents" AS referred WHERE own."document" = referred."id";"#,
            r#"keys: ALTER TABLE "public"."documents" DROP CONSTRAINT "documents_pkey", ADD CONSTRAINT "documents_pkey" PRIMARY KEY (id, "tenant");"#,
            r#"! "id" is unique within the same "tenant" only, not in the whole table any more; ON CONFLICT has to name "tenant", too."#,
            r#"keys: ALTER TABLE "public"."events" ALTER COLUMN "tenant" SET NOT NULL, DROP CONSTRAINT "events_pkey", ADD CONSTRAINT "events_pkey" PRIMARY KEY (document, at, "tenant");"#,
            r#"! "document", "at" is as unique as before; ON CONFLICT has to name "tenant", too."#,
            r#"keys: DROP INDEX "public"."events_once";"#,
            r#"! "document" is as unique as before; ON CONFLICT has to name "tenant", too."#,
            r#"keys: CREATE UNIQUE INDEX events_once ON public.events_one USING btree (document, "tenant");"#,
            r#"add foreign keys: ALTER TABLE "public"."events" ADD CONSTRAINT "events_document_fkey" FOREIGN KEY (document, "tenant") REFERENCES public.documents(id, "tenant");"#,
            "transaction: COMMIT;",
            r#"distribute: SELECT shardgate.distribute_tables('{"public.tenants": "id", "public.documents": "tenant", "public.events": "tenant"}');"#,
        ],
    );
    assert_eq!(losses, Losses { foreign_keys: 0, uniques: 1 });
}

#[test]
fn foreign_keys_keep_their_actions_and_when_they_are_checked() {
    let mut fixture = Fixture::default();
    let tenants = fixture.tenants();
    let documents = fixture.of_tenant(tenants, "documents", &[]);
    let notes = fixture.of_tenant(tenants, "notes", &["document int8"]);
    fixture.foreign_key(notes, &["document"], documents, &["id"], " ON DELETE SET NULL");
    let attachments = fixture.of_tenant(tenants, "attachments", &["note int8!"]);
    fixture.unique(attachments, "attachments_note_key", "UNIQUE (note)", &["note"]);
    fixture.foreign_key(attachments, &["note"], notes, &["id"], " DEFERRABLE INITIALLY DEFERRED");
    let (text, losses) = fixture.plan(r#"{"tenants": "id"}"#);
    let weaker = r#"! "id" is unique within the same "tenant" only, not in the whole table any more; ON CONFLICT has to name "tenant", too."#;
    let weaker_and_note = format!(r#"{weaker} "note" is as unique as before; ON CONFLICT has to name "tenant", too."#);
    assert_lines(
        &text,
        &[
            "transaction: BEGIN;",
            r#"drop foreign keys: ALTER TABLE "public"."attachments" DROP CONSTRAINT "attachments_note_fkey";"#,
            r#"drop foreign keys: ALTER TABLE "public"."notes" DROP CONSTRAINT "notes_document_fkey";"#,
            r#"keys: ALTER TABLE "public"."attachments" DROP CONSTRAINT "attachments_pkey", ADD CONSTRAINT "attachments_pkey" PRIMARY KEY (id, "tenant"), DROP CONSTRAINT "attachments_note_key", ADD CONSTRAINT "attachments_note_key" UNIQUE (note, "tenant");"#,
            &weaker_and_note,
            r#"keys: ALTER TABLE "public"."documents" DROP CONSTRAINT "documents_pkey", ADD CONSTRAINT "documents_pkey" PRIMARY KEY (id, "tenant");"#,
            weaker,
            r#"keys: ALTER TABLE "public"."notes" DROP CONSTRAINT "notes_pkey", ADD CONSTRAINT "notes_pkey" PRIMARY KEY (id, "tenant");"#,
            weaker,
            r#"add foreign keys: ALTER TABLE "public"."attachments" ADD CONSTRAINT "attachments_note_fkey" FOREIGN KEY (note, "tenant") REFERENCES public.notes(id, "tenant") DEFERRABLE INITIALLY DEFERRED;"#,
            r#"add foreign keys: ALTER TABLE "public"."notes" ADD CONSTRAINT "notes_document_fkey" FOREIGN KEY (document, "tenant") REFERENCES public.documents(id, "tenant") ON DELETE SET NULL ("document");"#,
            "transaction: COMMIT;",
            r#"distribute: SELECT shardgate.distribute_tables('{"public.tenants": "id", "public.attachments": "tenant", "public.documents": "tenant", "public.notes": "tenant"}');"#,
        ],
    );
    assert_eq!(losses, Losses { foreign_keys: 0, uniques: 3 });
}

#[test]
fn what_a_dropped_foreign_key_refers_to_makes_nothing_unique() {
    let mut fixture = Fixture::default();
    let customers = fixture.table("public", "customers", &["id int8!"]);
    fixture.unique(customers, "customers_pkey", "PRIMARY KEY (id)", &["id"]);
    let orders = fixture.table("public", "orders", &["buyer_id int8!", "seller_id int8!", "no int8!"]);
    fixture.unique(orders, "orders_no_key", "UNIQUE (buyer_id, no)", &["buyer_id", "no"]);
    fixture.foreign_key(orders, &["buyer_id"], customers, &["id"], "");
    fixture.foreign_key(orders, &["seller_id"], customers, &["id"], "");
    let (text, losses) = fixture.plan(r#"{"customers": "id", "orders": "seller_id"}"#);
    assert_lines(
        &text,
        &[
            "transaction: BEGIN;",
            r#"drop foreign keys: ALTER TABLE "public"."orders" DROP CONSTRAINT "orders_buyer_id_fkey";"#,
            r#"! Foreign key "orders_buyer_id_fkey" is not made again: Rows of public.orders refer to rows of public.customers with other shard keys, which may be on other shards. Nothing checks it, and nothing acts on it."#,
            r#"keys: ALTER TABLE "public"."orders" DROP CONSTRAINT "orders_no_key", ADD CONSTRAINT "orders_no_key" UNIQUE (buyer_id, no, "seller_id");"#,
            r#"! "buyer_id", "no" is unique within the same "seller_id" only, not in the whole table any more; ON CONFLICT has to name "seller_id", too."#,
            "transaction: COMMIT;",
            r#"distribute: SELECT shardgate.distribute_tables('{"public.customers": "id", "public.orders": "seller_id"}');"#,
        ],
    );
    assert_eq!(losses, Losses { foreign_keys: 1, uniques: 1 });
}

#[test]
fn indexes_with_conditions_stay_where_they_are_stored() {
    let mut fixture = Fixture::default();
    let tenants = fixture.tenants();
    let bookings =
        fixture.table("public", "bookings", &["id int8!+", "tenant int8!", "room int8!", "nights int8range!", "is_done bool!"]);
    fixture.unique(bookings, "bookings_pkey", "PRIMARY KEY (id)", &["id"]);
    fixture.foreign_key(bookings, &["tenant"], tenants, &["id"], "");
    let exclusion = "EXCLUDE USING gist (room WITH =, nights WITH &&) WHERE ((NOT is_done))";
    fixture.unique(bookings, "bookings_excl", exclusion, &["room", ""]);
    let index = "CREATE UNIQUE INDEX bookings_open ON public.bookings USING btree (room) WHERE (NOT is_done)";
    fixture.unique(bookings, "bookings_open", index, &["room"]);
    for name in ["bookings_excl", "bookings_open"] {
        let storage = Storage { tablespace: "fast".to_owned(), ..Storage::default() };
        fixture.facts.storage.insert((bookings, name.to_owned()), storage);
    }
    let (text, _) = fixture.plan(r#"{"tenants": "id"}"#);
    let obstacles: Vec<&str> = text.lines().filter(|line| line.starts_with("obstacle: ")).collect();
    let expected = r#"obstacle: Exclusion constraint "bookings_excl" of table public.bookings cannot get the shard key. CREATE EXTENSION btree_gist first, which compares the key by = in gist indexes; or drop the constraint."#;
    assert_eq!(obstacles, [expected]);

    fixture.catalog.definitions.insert(ObjectName::new("extension", "btree_gist"), "");
    let (text, losses) = fixture.plan(r#"{"tenants": "id"}"#);
    assert_lines(
        &text,
        &[
            "transaction: BEGIN;",
            r#"keys: ALTER TABLE "public"."bookings" DROP CONSTRAINT "bookings_pkey", ADD CONSTRAINT "bookings_pkey" PRIMARY KEY (id, "tenant"), DROP CONSTRAINT "bookings_excl", ADD CONSTRAINT "bookings_excl" EXCLUDE USING gist (room WITH =, nights WITH &&, "tenant" WITH =) USING INDEX TABLESPACE fast WHERE ((NOT is_done));"#,
            r#"! "id" is unique within the same "tenant" only where a client gives it, and in the whole table where the database makes it; ON CONFLICT has to name "tenant", too. Exclusion constraint "bookings_excl" excludes rows of the same "tenant" only. "room" is unique within the same "tenant" only, not in the whole table any more; ON CONFLICT has to name "tenant", too."#,
            r#"keys: DROP INDEX "public"."bookings_open";"#,
            r#"keys: CREATE UNIQUE INDEX bookings_open ON public.bookings USING btree (room, "tenant") TABLESPACE fast WHERE (NOT is_done);"#,
            "transaction: COMMIT;",
            r#"distribute: SELECT shardgate.distribute_tables('{"public.tenants": "id", "public.bookings": "tenant"}');"#,
        ],
    );
    assert_eq!(losses, Losses { foreign_keys: 0, uniques: 3 });
}

#[test]
fn names_with_capitals_and_quotes_stay_themselves() {
    let mut fixture = Fixture::default();
    let customers = fixture.table("Shop", "Customers", &["Id int8!"]);
    fixture.unique(customers, "Customers_pkey", r#"PRIMARY KEY ("Id")"#, &["Id"]);
    let items = fixture.table("Shop", r#"Order "Items""#, &["No int8!", "Customer int8!"]);
    fixture.unique(items, r#"Order "Items"_pkey"#, r#"PRIMARY KEY ("No")"#, &["No"]);
    fixture.foreign_key(items, &["Customer"], customers, &["Id"], "");
    let lines = fixture.table("Shop", "Lines", &["Line int8!", "No int8!"]);
    fixture.unique(lines, "Lines_pkey", r#"PRIMARY KEY ("Line")"#, &["Line"]);
    fixture.foreign_key(lines, &["No"], items, &["No"], "");
    let (text, _) = fixture.plan(r#"{"\"Shop\".\"Customers\"": "\"Id\""}"#);
    assert_lines(
        &text,
        &[
            "transaction: BEGIN;",
            r#"drop foreign keys: ALTER TABLE "Shop"."Lines" DROP CONSTRAINT "Lines_No_fkey";"#,
            r#"add column: ALTER TABLE "Shop"."Lines" ADD COLUMN "Customer" bigint;"#,
            r#"! INSERT has to give "Customer" from now on: the proxy finds the row's shard by it."#,
            r#"fill column: UPDATE "Shop"."Lines" AS own SET "Customer" = referred."Customer" FROM "Shop"."Order ""Items""" AS referred WHERE own."No" = referred."No";"#,
            r#"keys: ALTER TABLE "Shop"."Order ""Items""" DROP CONSTRAINT "Order ""Items""_pkey", ADD CONSTRAINT "Order ""Items""_pkey" PRIMARY KEY ("No", "Customer");"#,
            r#"! "No" is unique within the same "Customer" only, not in the whole table any more; ON CONFLICT has to name "Customer", too."#,
            r#"keys: ALTER TABLE "Shop"."Lines" ALTER COLUMN "Customer" SET NOT NULL, DROP CONSTRAINT "Lines_pkey", ADD CONSTRAINT "Lines_pkey" PRIMARY KEY ("Line", "Customer");"#,
            r#"! "Line" is unique within the same "Customer" only, not in the whole table any more; ON CONFLICT has to name "Customer", too."#,
            r#"add foreign keys: ALTER TABLE "Shop"."Lines" ADD CONSTRAINT "Lines_No_fkey" FOREIGN KEY ("No", "Customer") REFERENCES "Shop"."Order ""Items"""("No", "Customer");"#,
            "transaction: COMMIT;",
            r#"distribute: SELECT shardgate.distribute_tables(E'{"\\"Shop\\".\\"Customers\\"": "\\"Id\\"", "\\"Shop\\".\\"Order \\"\\"Items\\"\\"\\"": "\\"Customer\\"", "\\"Shop\\".\\"Lines\\"": "\\"Customer\\""}');"#,
        ],
    );
}

/// With the key in it, a primary key determines nothing by its old columns alone.
#[test]
fn what_groups_by_a_primary_key_has_to_be_written_anew() {
    let mut fixture = Fixture::default();
    let tenants = fixture.tenants();
    let tasks = fixture.of_tenant(tenants, "tasks", &["title text"]);
    let keys = "{\"tenants\": \"id\", \"tasks\": \"tenant\"}";
    let user = |kind, oid, name: &str| User { kind, oid, name: name.to_owned() };
    let query = " SELECT id,\n    title\n   FROM public.tasks\n  GROUP BY id;";
    let key = (tasks, "tasks_pkey".to_owned());
    fixture.facts.users.insert(key.clone(), vec![user(UserKind::Other, 7, "function grouped()")]);
    let (text, _) = fixture.plan(keys);
    let expected = "is needed by function grouped(). Drop these first, and create them again at the end, with \"tenant\" beside \"id\" in their GROUP BY";
    assert!(text.contains(expected), "{text}");

    let stored = fixture.view("stored", RelationKind::MaterializedView, query, &["id int8!", "title text"]);
    fixture.facts.users.insert(key.clone(), vec![user(UserKind::MaterializedView, stored, "materialized view stored")]);
    let (text, _) = fixture.plan(keys);
    let expected = "DROP MATERIALIZED VIEW \"public\".\"stored\"; And at the end, with the privileges that you give it: CREATE MATERIALIZED VIEW \"public\".\"stored\" AS SELECT";
    assert!(text.contains(expected), "{text}");

    let grouped = fixture.view("grouped", RelationKind::View, query, &["id int8!", "title text"]);
    fixture.facts.users.insert(key, vec![user(UserKind::View, grouped, "view grouped")]);
    fixture.facts.view_options.insert(grouped, "security_barrier=true".to_owned());
    let (text, _) = fixture.plan(keys);
    assert_lines(
        &text,
        &[
            "transaction: BEGIN;",
            r#"views: CREATE OR REPLACE VIEW "public"."grouped" WITH (security_barrier=true) AS SELECT NULL::bigint AS "id", NULL::pg_catalog.text AS "title";"#,
            r#"keys: ALTER TABLE "public"."tasks" DROP CONSTRAINT "tasks_pkey", ADD CONSTRAINT "tasks_pkey" PRIMARY KEY (id, "tenant");"#,
            r#"! "id" is unique within the same "tenant" only, not in the whole table any more; ON CONFLICT has to name "tenant", too."#,
            r#"views: CREATE OR REPLACE VIEW "public"."grouped" WITH (security_barrier=true) AS SELECT id,"#,
            "    title",
            "   FROM public.tasks",
            r#"  GROUP BY "tenant", id;"#,
            "transaction: COMMIT;",
            r#"distribute: SELECT shardgate.distribute_tables('{"public.tenants": "id", "public.tasks": "tenant"}');"#,
        ],
    );
}
