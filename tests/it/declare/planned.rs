//! `plan_tables()`: schemas as applications have them are declared by the script that it gives, run as it is printed.
//!
//! Three schemas on one cluster: an identity server by network, a survey tool by workspace, an auth service by user. Of each: what is in the
//! way is said before anything is run, the script runs to its end, no row and no constraint is lost, and a second plan is empty.

use std::collections::BTreeMap;

use tokio_postgres::{Client, SimpleQueryMessage};

use crate::support::{Cluster, Proxy, ProxyOptions, ProxyUser, connect};

const SCHEMAS: [&str; 3] =
    [include_str!("planned/identity.sql"), include_str!("planned/survey.sql"), include_str!("planned/auth.sql")];

/// One row of a plan.
#[derive(Debug)]
struct Step {
    kind: String,
    statement: Option<String>,
    reason: String,
    warning: String,
}

struct Scene {
    cluster: Cluster,
    proxy: Proxy,
    client: Client,
    home: Client,
}

impl Scene {
    async fn start() -> Self {
        let cluster = Cluster::start_with(2, &[("shared_preload_libraries", "pg_stat_statements")]).await;
        let home = cluster.connect_shard(0).await;
        home.batch_execute("CREATE EXTENSION pg_stat_statements").await.expect("an extension");
        for schema in SCHEMAS {
            home.batch_execute(schema).await.expect("a schema");
        }
        home.batch_execute("ANALYZE").await.expect("statistics");
        let other = ProxyUser { name: "other".into(), password: None, admin: false };
        let proxy = Proxy::start(&cluster, ProxyOptions { users: vec![other], ..ProxyOptions::default() });
        let client = proxy.connect().await;
        for shard in 0..2 {
            let add = format!("SELECT shardgate.add_shard('shard{shard}', '{}')", cluster.shard_url(shard));
            client.batch_execute(&add).await.expect("add a shard");
        }
        Self { cluster, proxy, client, home }
    }

    async fn plan(&self, arguments: &str) -> Vec<Step> {
        let call = format!("SELECT kind, statement, reason, warning FROM shardgate.plan_tables({arguments}) ORDER BY step");
        let rows = self.client.simple_query(&call).await.expect(&call);
        let step = |row: &SimpleQueryMessage| match row {
            SimpleQueryMessage::Row(row) => {
                let text = |place: usize| row.get(place).map(str::to_owned);
                let (kind, reason) = (text(0).unwrap_or_default(), text(2).unwrap_or_default());
                Some(Step { kind, statement: text(1), reason, warning: text(3).unwrap_or_default() })
            }
            _ => None,
        };
        rows.iter().filter_map(step).collect()
    }

    /// What is in the way, as one text.
    async fn obstacles(&self, arguments: &str) -> String {
        let steps = self.plan(arguments).await;
        assert!(steps.iter().all(|step| step.kind == "obstacle" && step.statement.is_none()), "{steps:?}");
        steps.into_iter().map(|step| format!("{}\n", step.reason)).collect()
    }

    /// The script, run as it is printed. Gives the warnings.
    async fn play(&self, arguments: &str) -> (usize, String) {
        let steps = self.plan(arguments).await;
        let mut warnings = String::new();
        for step in &steps {
            let statement = step.statement.as_deref().unwrap_or_else(|| panic!("in the way: {}", step.reason));
            if let Err(error) = self.client.simple_query(statement).await {
                panic!("{statement}: {:?}\n{steps:#?}", error.as_db_error());
            }
            warnings.push_str(&step.warning);
            warnings.push('\n');
        }
        assert!(self.plan(arguments).await.is_empty(), "what is done is not planned again");
        (steps.len(), warnings)
    }

    async fn home(&self, sql: &str) -> String {
        let row = self.home.query_one(&format!("SELECT ({sql})::text"), &[]).await.expect(sql);
        row.get::<_, Option<String>>(0).unwrap_or_default()
    }

    /// The rows of each table of a schema, without the columns that are added.
    async fn rows(&self, schema: &str, added: &str) -> BTreeMap<String, String> {
        let tables = format!(
            "SELECT string_agg(relname, '|' ORDER BY relname) FROM pg_class
             WHERE relnamespace = '{schema}'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition"
        );
        let mut found = BTreeMap::new();
        for table in self.home(&tables).await.split('|') {
            let digest = format!(
                "SELECT count(*) || md5(string_agg((to_jsonb(t) - ARRAY[{added}]::text[])::text, '' ORDER BY to_jsonb(t) - ARRAY[{added}]::text[]))
                 FROM {schema}.\"{table}\" t"
            );
            found.insert(table.to_owned(), self.home(&digest).await);
        }
        found
    }

    async fn constraints(&self, schema: &str) -> String {
        self.home(&format!(
            "SELECT string_agg(conname || ' ' || contype::text, ', ' ORDER BY conname, contype) FROM pg_constraint
             WHERE connamespace = '{schema}'::regnamespace AND contype IN ('p', 'u', 'f')"
        ))
        .await
    }

    async fn refused(&self, sql: &str) -> String {
        let error = self.client.simple_query(sql).await.expect_err(sql);
        error.code().map(|code| code.code().to_owned()).unwrap_or_default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schemas_of_applications_are_declared_by_the_script_as_it_is_printed() {
    let scene = Scene::start().await;
    keys_are_proposed(&scene).await;
    identity_server(&scene).await;
    survey_tool(&scene).await;
    auth_service(&scene).await;
    who_may_call_and_how(&scene).await;
}

async fn identity_server(scene: &Scene) {
    let told = scene.obstacles(r#"'{"ident.networks": "id"}'"#).await;
    assert!(told.contains("refers to table ident.credential_types, and nothing is said of that table."), "{told}");
    assert!(told.contains("Name it in reference_tables"), "{told}");
    // Rows that do not agree are found before anything is changed.
    let arguments = r#"'{"ident.networks": "id"}', '{ident.credential_types}'"#;
    let other = "UPDATE ident.session_devices SET nid = (SELECT id FROM ident.networks n WHERE n.id <> nid LIMIT 1)
                 WHERE id = (SELECT min(id::text)::uuid FROM ident.session_devices) RETURNING id";
    scene.client.simple_query(other).await.expect(other);
    let told = scene.obstacles(arguments).await;
    assert!(told.contains("\"session_devices_session_id_fkey\" to rows of ident.sessions that have another shard key"), "{told}");
    let mend = "UPDATE ident.session_devices d SET nid = s.nid FROM ident.sessions s WHERE s.id = d.session_id";
    scene.client.simple_query(mend).await.expect(mend);

    let (rows, constraints) = (scene.rows("ident", "").await, scene.constraints("ident").await);
    let (steps, warnings) = scene.play(arguments).await;
    assert!(steps < 60, "{steps}");
    assert!(warnings.contains("\"token\" is unique within the same \"nid\" only"), "{warnings}");
    assert_eq!((scene.rows("ident", "").await, scene.constraints("ident").await), (rows, constraints));
    for (name, expected) in [
        (
            "of_credential",
            "FOREIGN KEY (credential_id, nid) REFERENCES ident.credentials(id, nid) MATCH FULL ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED",
        ),
        (
            "recovery_codes_address_id_fkey",
            "FOREIGN KEY (address_id, nid) REFERENCES ident.recovery_addresses(id, nid) ON DELETE SET NULL (address_id)",
        ),
        (
            "organizations_parent_id_fkey",
            "FOREIGN KEY (parent_id, nid) REFERENCES ident.organizations(id, nid) ON DELETE SET NULL (parent_id)",
        ),
        (
            "events_identity_id_fkey",
            "FOREIGN KEY (identity_id, nid) REFERENCES ident.identities(id, nid) ON DELETE SET NULL (identity_id)",
        ),
        ("credentials_nid_fkey", "FOREIGN KEY (nid) REFERENCES ident.networks(id) ON UPDATE RESTRICT ON DELETE CASCADE"),
        ("identities_external", "UNIQUE NULLS NOT DISTINCT (external_id, nid)"),
        ("organizations_rank_key", "UNIQUE (rank, nid) DEFERRABLE INITIALLY DEFERRED"),
        ("memberships_pkey", "PRIMARY KEY (identity_id, organization_id, nid)"),
        ("identifiers_once", "UNIQUE (identifier, type_id, nid) INCLUDE (credential_id)"),
    ] {
        let definition =
            format!("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = '{name}' AND conparentid = 0 LIMIT 1");
        for shard in 0..2 {
            let client = scene.cluster.connect_shard(shard).await;
            let found = client.query_opt(&definition, &[]).await.expect(name);
            assert_eq!(found.map(|row| row.get::<_, String>(0)).as_deref(), Some(expected), "{name} on shard {shard}");
        }
    }
    let index = "SELECT pg_get_indexdef('ident.verified_once'::regclass) || obj_description('ident.verified_once'::regclass)";
    assert!(scene.home(index).await.ends_with("(lower(value), nid) WHERE verifiedone's own"));
    let options = "SELECT reloptions FROM pg_class WHERE relname = 'identifiers_once'";
    assert_eq!(scene.home(options).await, "{fillfactor=70}");
    // Deleting what is referred to takes the reference and not the key.
    scene.client.simple_query("DELETE FROM ident.recovery_addresses").await.expect("delete");
    assert_eq!(scene.home("SELECT count(*) FROM ident.recovery_codes WHERE address_id IS NULL AND nid IS NOT NULL").await, "60");
    let stray = "INSERT INTO ident.sessions SELECT gen_random_uuid(), (SELECT id FROM ident.networks n WHERE n.id <> i.nid LIMIT 1), 'x', i.id
                 FROM ident.identities i LIMIT 1";
    let error = scene.home.simple_query(stray).await.expect_err("of another network");
    assert_eq!(error.code().map(|code| code.code()), Some("23503"));
}

async fn survey_tool(scene: &Scene) {
    let arguments = r#"'{"survey.workspaces": "id"}', '{survey.organizations}'"#;
    // A row that leads to no workspace has no key.
    scene.client.simple_query("ALTER TABLE survey.tags ALTER environment_id DROP NOT NULL").await.expect("alter");
    scene.client.simple_query("INSERT INTO survey.tags VALUES ('lost', NULL, 'lost')").await.expect("insert");
    let told = scene.obstacles(arguments).await;
    assert!(told.contains("Rows of table survey.tags would get no shard key: foreign key \"tags_environment_id_fkey\""), "{told}");
    scene.client.simple_query("DELETE FROM survey.tags WHERE id = 'lost'").await.expect("delete");

    let (rows, constraints) = (scene.rows("survey", "'workspace_id'").await, scene.constraints("survey").await);
    let (_, warnings) = scene.play(arguments).await;
    assert!(warnings.contains("INSERT has to give \"workspace_id\" from now on"), "{warnings}");
    assert_eq!((scene.rows("survey", "'workspace_id'").await, scene.constraints("survey").await), (rows, constraints));
    let keys = "SELECT string_agg(key, ' ' ORDER BY table_name) FROM shardgate.tables WHERE table_name IN ('survey.responses', 'survey.tags_on_responses', 'survey.workspaces')";
    let found = scene.client.query_one(keys, &[]).await.expect(keys);
    assert_eq!(found.get::<_, &str>(0), "workspace_id workspace_id id");
    let wrong = "SELECT count(*) FROM survey.response_notes WHERE workspace_id <> left(response_id, 2)";
    assert_eq!(scene.home(wrong).await, "0");
    // The triggers fire again, as they did.
    let triggers = "SELECT string_agg(tgname || tgenabled::text, ' ' ORDER BY tgname) FROM pg_trigger WHERE NOT tgisinternal AND tgrelid::regclass::text LIKE 'survey.%'";
    assert_eq!(scene.home(triggers).await, "TouchA touchO");
    let set = "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'displays_response_id_fkey'";
    assert!(scene.home(set).await.ends_with("ON DELETE SET NULL (response_id)"));
}

async fn auth_service(scene: &Scene) {
    let arguments = r#"'{"auth.users": "id"}'"#;
    let told = scene.obstacles(arguments).await;
    assert!(
        told.contains("The key of table auth.refresh_tokens (user_id: text) has another type than that of auth.users (id: uuid)"),
        "{told}"
    );
    assert!(
        told.contains("Table auth.follows refers to the shard key by several columns: \"followed\" and \"follower\"."),
        "{told}"
    );
    // As it says.
    let change = "ALTER TABLE \"auth\".\"refresh_tokens\" ALTER COLUMN \"user_id\" TYPE uuid USING \"user_id\"::uuid";
    assert!(told.contains(change), "{told}");
    scene.client.simple_query(change).await.expect(change);
    let arguments = r#"'{"auth.users": "id", "auth.follows": null, "auth.audit_log": null}'"#;
    let rows = scene.rows("auth", "'user_id'").await;
    let (_, warnings) = scene.play(arguments).await;
    assert!(
        warnings.contains("Foreign key \"audit_log_actor_fkey\" is not made again: Table auth.audit_log stays on the home shard."),
        "{warnings}"
    );
    assert!(warnings.contains("\"id\" is unique by itself, and two rows may have the same \"phone\""), "{warnings}");
    assert_eq!(scene.rows("auth", "'user_id'").await, rows);
    let partial = "SELECT pg_get_indexdef('auth.users_email_partial_key'::regclass)";
    assert!(scene.home(partial).await.ends_with("(email, id) WHERE (NOT is_sso)"));
    let foreign_keys = "SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND connamespace = 'auth'::regnamespace";
    assert_eq!(scene.home(foreign_keys).await, "6");
}

/// One row for each, with what is known.
async fn keys_are_proposed(scene: &Scene) {
    let count = "SELECT count(*) FROM ident.sessions WHERE nid = '00000000-0000-0000-0000-000000000001'";
    for _ in 0..3 {
        scene.client.simple_query(count).await.expect(count);
    }
    scene.client.simple_query("SELECT count(*) FROM ident.sessions").await.expect("on all shards");
    let proposed = scene.plan("").await;
    assert!(proposed.iter().all(|step| step.kind == "candidate" && step.statement.is_some()), "{proposed:?}");
    let of = |table: &str| {
        let named = format!("SELECT * FROM shardgate.plan_tables('{{\"{table}\": \"id\"}}'");
        proposed.iter().find(|step| step.statement.as_deref().is_some_and(|statement| statement.starts_with(&named)))
    };
    let networks = of("ident.networks").expect("a candidate");
    assert!(networks.statement.as_deref().is_some_and(|call| call.ends_with("'{\"ident.credential_types\"}');")), "{networks:?}");
    assert!(networks.reason.contains("15 of 38 tables"), "{networks:?}");
    assert!(
        networks.reason.contains("statements on one shard: ") && !networks.reason.contains("statements on one shard: unknown"),
        "{networks:?}"
    );
    assert!(networks.reason.contains("transactions on one shard: unknown"), "{networks:?}");
    assert!(of("survey.workspaces").is_some_and(|step| step.reason.contains("columns to add: 9")), "{proposed:#?}");
    assert!(of("auth.users").is_some(), "{proposed:#?}");
}

/// As a function that returns rows, and from the command line.
async fn who_may_call_and_how(scene: &Scene) {
    let client = &scene.client;
    let whole =
        r#"SELECT * FROM shardgate.plan_tables(reference_tables => '{auth.sso_providers}', keys => '{"auth.users": "id"}')"#;
    let row = client.query_one(whole, &[]).await.expect(whole);
    assert_eq!((row.get::<_, i32>(0), row.get::<_, &str>(1)), (1, "reference table"));
    let counted = r#"SELECT count(*) FROM shardgate.plan_tables(keys => '{"auth.users": "id"}', reference_tables => ARRAY['auth.sso_providers']) WHERE statement IS NOT NULL"#;
    assert_eq!(client.query_one(counted, &[]).await.expect(counted).get::<_, i64>(0), 1);
    for (call, expected) in [
        ("'{}'", "22023"),
        ("'[1]'", "22023"),
        (r#"'{"auth.users": 1}'"#, "22023"),
        (r#"'{"auth.nothing": "id"}'"#, "42P01"),
        (r#"'{"auth.users": "id"}', '{auth.users}'"#, "22023"),
        (r#"'{"auth.users": "id", "\"auth\".users": "id"}'"#, "22023"),
    ] {
        assert_eq!(scene.refused(&format!("SELECT * FROM shardgate.plan_tables({call})")).await, expected, "{call}");
    }
    let user = connect(&scene.proxy.conninfo_as("other")).await;
    assert!(!user.simple_query(whole).await.expect("it changes nothing").is_empty());
    let other = scene.obstacles(r#"'{"auth.users": "email"}'"#).await;
    assert!(other.contains("Table auth.users is sharded already, by id."), "{other}");
    let asked = ["--plan-tables", r#"{"auth.users": "id"}"#, "--reference-tables", "auth.sso_providers"];
    let (succeeded, printed) = scene.proxy.check(&asked);
    assert!(succeeded && printed.ends_with("SELECT shardgate.reference_table('auth.sso_providers');\n\n"), "{printed}");
    let (succeeded, printed) = scene.proxy.check(&["--plan-tables", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&printed).expect("JSON");
    assert!(succeeded && json["plan"].is_array(), "{printed}");
}
