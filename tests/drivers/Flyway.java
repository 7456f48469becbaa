import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.List;

/**
 * What Flyway sends over pgjdbc: one connection that holds its advisory lock and writes its history, another on which each migration runs
 * in a transaction; or one connection with a lock of the session, for what cannot run in a transaction. Flyway itself is not needed.
 */
final class Flyway {
    private static final String HISTORY = "\"public\".\"flyway_schema_history\"";
    private static final long LOCK = 77431708279161L + HISTORY.hashCode();

    public static void main(String[] arguments) throws Exception {
        try (Connection main = Common.connect("ApplicationName=Flyway")) {
            about(main);
            history(main);
            try (Connection migrating = Common.connect("ApplicationName=Flyway")) {
                about(migrating);
                refused(migrating);
                transactional(main, migrating, "1", "create tables", "CREATE TABLE fly_tenants (id serial PRIMARY KEY, name varchar(40) NOT NULL)",
                    "CREATE TABLE fly_tasks (tenant int NOT NULL, n int NOT NULL, title text, PRIMARY KEY (tenant, n))",
                    "CREATE TABLE fly_kinds (kind text PRIMARY KEY)", "INSERT INTO fly_kinds VALUES ('a'), ('b')");
                Common.run(main, "SELECT shardgate.distribute_tables('{\"fly_tenants\": \"id\", \"fly_tasks\": \"tenant\"}')",
                    "SELECT shardgate.reference_table('fly_kinds')",
                    "INSERT INTO fly_tenants (name) SELECT 't' || g FROM generate_series(1, 30) g",
                    "INSERT INTO fly_tasks SELECT t, n, t || '.' || n FROM generate_series(1, 30) t, generate_series(1, 2) n");
                Common.worked("history of the schema");
                migrations(main, migrating);
                failing(main, migrating);
            }
        }
        try (Connection single = Common.connect("ApplicationName=Flyway")) {
            sessionLock(single);
            clean(single);
        }
    }

    static void about(Connection connection) throws SQLException {
        Common.same(Common.one(connection, "SELECT CURRENT_USER"), Common.one(connection, "SELECT current_user"));
        Common.same(Common.rows(connection, "SELECT rolname FROM pg_roles WHERE rolname ILIKE 'rds_superuser'"), List.of());
        Common.told("path", Common.one(connection, "SHOW search_path") + " " + Common.one(connection, "SELECT current_schema"));
        Common.told("version", Common.one(connection, "SELECT current_setting('server_version_num')::int / 10000 > 12"));
    }

    static boolean exists(Connection connection, String table) throws SQLException {
        try (PreparedStatement get = connection.prepareStatement("SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_class c "
                + "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = ? AND c.relname = ? AND c.relkind = 'r')")) {
            get.setString(1, "public");
            get.setString(2, table);
            ResultSet found = get.executeQuery();
            return found.next() && found.getBoolean(1);
        }
    }

    static void history(Connection main) throws SQLException {
        Common.same(exists(main, "flyway_schema_history"), false);
        lock(main);
        Common.run(main, "CREATE TABLE " + HISTORY + " (\"installed_rank\" INT NOT NULL, \"version\" VARCHAR(50), \"description\" VARCHAR(200) NOT NULL, "
                + "\"type\" VARCHAR(20) NOT NULL, \"script\" VARCHAR(1000) NOT NULL, \"checksum\" INTEGER, \"installed_by\" VARCHAR(100) NOT NULL, "
                + "\"installed_on\" TIMESTAMP NOT NULL DEFAULT now(), \"execution_time\" INTEGER NOT NULL, \"success\" BOOLEAN NOT NULL)",
            "ALTER TABLE " + HISTORY + " ADD CONSTRAINT \"flyway_schema_history_pk\" PRIMARY KEY (\"installed_rank\")",
            "CREATE INDEX \"flyway_schema_history_s_idx\" ON " + HISTORY + " (\"success\")");
        main.commit();
        main.setAutoCommit(true);
        Common.same(exists(main, "flyway_schema_history"), true);
    }

    static void lock(Connection main) throws SQLException {
        main.setAutoCommit(false);
        Common.same(Common.one(main, "SELECT pg_try_advisory_xact_lock(" + LOCK + ")"), "t");
    }

    /** While another holds the lock. */
    static void refused(Connection other) throws SQLException {
        try (Connection holder = Common.connect()) {
            lock(holder);
            Common.same(Common.one(other, "SELECT pg_try_advisory_xact_lock(" + LOCK + ")"), "f");
            holder.rollback();
        }
        Common.same(Common.one(other, "SELECT pg_try_advisory_xact_lock(" + LOCK + ")"), "t");
    }

    static void record(Connection main, String version, String description, boolean success) throws SQLException {
        try (PreparedStatement put = main.prepareStatement("INSERT INTO " + HISTORY + " (\"installed_rank\", \"version\", \"description\", \"type\", "
                + "\"script\", \"checksum\", \"installed_by\", \"execution_time\", \"success\") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)")) {
            put.setInt(1, Integer.parseInt(version));
            put.setString(2, version);
            put.setString(3, description);
            put.setString(4, "SQL");
            put.setString(5, "V" + version + ".sql");
            put.setInt(6, 42);
            put.setString(7, "somebody");
            put.setInt(8, 1);
            put.setBoolean(9, success);
            Common.same(put.executeUpdate(), 1);
        }
    }

    static void transactional(Connection main, Connection migrating, String version, String description, String... statements) throws SQLException {
        lock(main);
        try (PreparedStatement get = main.prepareStatement("/*NO LOAD BALANCE*/\nSELECT \"installed_rank\",\"version\",\"success\" FROM " + HISTORY
                + " WHERE \"installed_rank\" > ? ORDER BY \"installed_rank\"")) {
            get.setInt(1, 0);
            Common.told("before", Common.rows(get.executeQuery()));
        }
        try (PreparedStatement set = migrating.prepareStatement("SELECT set_config('search_path', ?, false)")) {
            set.setString(1, "\"public\",\"$user\", public");
            set.execute();
        }
        migrating.setAutoCommit(false);
        try {
            Common.run(migrating, statements);
            migrating.commit();
            record(main, version, description, true);
        } catch (SQLException error) {
            Common.told("failed", error.getSQLState() + " " + error.getMessage().lines().findFirst());
            migrating.rollback();
            throw error;
        } finally {
            migrating.setAutoCommit(true);
            Common.run(migrating, "SET ROLE '" + Common.one(migrating, "SELECT CURRENT_USER") + "'");
            main.commit();
            main.setAutoCommit(true);
        }
    }

    static void migrations(Connection main, Connection migrating) throws SQLException {
        transactional(main, migrating, "2", "add columns", "ALTER TABLE fly_tasks ADD COLUMN state varchar(20) NOT NULL DEFAULT 'new', ADD COLUMN kind text",
            "UPDATE fly_tasks SET kind = CASE WHEN n = 1 THEN 'a' ELSE 'b' END", "ALTER TABLE fly_tasks ALTER COLUMN kind SET NOT NULL",
            "UPDATE fly_tasks SET state = 'old' WHERE n = 1; UPDATE fly_tasks SET title = title || '!' WHERE state = 'old'",
            "ALTER TABLE fly_tasks ALTER COLUMN state DROP DEFAULT, ALTER COLUMN title TYPE varchar(100)",
            "CREATE INDEX fly_tasks_state ON fly_tasks (tenant, state)", "ALTER TABLE fly_tasks ADD CONSTRAINT known CHECK (state IN ('old', 'new')) NOT VALID",
            "ALTER TABLE fly_tasks VALIDATE CONSTRAINT known",
            "ALTER TABLE fly_tasks ADD CONSTRAINT of_kind FOREIGN KEY (kind) REFERENCES fly_kinds",
            "ALTER TABLE fly_tasks ADD CONSTRAINT of_tenant FOREIGN KEY (tenant) REFERENCES fly_tenants ON DELETE CASCADE",
            "ALTER TABLE fly_tasks RENAME COLUMN title TO name", "CREATE VIEW fly_open AS SELECT tenant, n, name FROM fly_tasks WHERE state = 'new'",
            "COMMENT ON TABLE fly_tasks IS 'what is to do'", "CREATE TYPE fly_mood AS ENUM ('sad', 'ok')",
            "ALTER TABLE fly_tasks ADD COLUMN mood fly_mood DEFAULT 'ok'", "UPDATE fly_tasks SET mood = 'sad' WHERE tenant < 4",
            "CREATE FUNCTION fly_stamp() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.name := upper(NEW.name); RETURN NEW; END $$",
            "CREATE TRIGGER fly_stamp BEFORE INSERT ON fly_tasks FOR EACH ROW EXECUTE FUNCTION fly_stamp()",
            "INSERT INTO fly_tasks (tenant, n, name, state, kind) SELECT id, 3, 'three ' || id, 'new', 'a' FROM fly_tenants WHERE id <= 30");
        Common.told("rows", Common.rows(main, "SELECT state, kind, mood, count(*), min(name), max(name) FROM fly_tasks GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"));
        transactional(main, migrating, "3", "one text", "BEGIN; ALTER TABLE fly_kinds ADD COLUMN label text NOT NULL DEFAULT 'x'; COMMIT;"
            .replace("BEGIN; ", "").replace(" COMMIT;", "") + " INSERT INTO fly_kinds VALUES ('c', 'see'); UPDATE fly_kinds SET label = upper(label);",
            "DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_tables WHERE tablename = 'fly_more') THEN CREATE TABLE fly_more (a int); END IF; END $$",
            "CREATE TABLE IF NOT EXISTS fly_tenants (id int)", "DROP INDEX IF EXISTS fly_never", "CREATE SEQUENCE fly_numbers START 100",
            "INSERT INTO fly_more SELECT nextval('fly_numbers') FROM generate_series(1, 3)", "TRUNCATE fly_more", "DROP TABLE fly_more");
        Common.told("kinds", Common.rows(main, "SELECT * FROM fly_kinds ORDER BY 1"));
        Common.worked("migrations in transactions");
    }

    static void failing(Connection main, Connection migrating) throws Exception {
        Common.fails("22012", () -> transactional(main, migrating, "4", "fails", "ALTER TABLE fly_tasks ADD COLUMN never int", "CREATE TABLE fly_never (a int)",
            "UPDATE fly_tasks SET never = 1 / (tenant - 17)"));
        Common.fails("23502", () -> transactional(main, migrating, "4", "fails", "ALTER TABLE fly_tasks ADD COLUMN never int NOT NULL"));
        Common.fails("25001", () -> transactional(main, migrating, "4", "fails", "CREATE INDEX CONCURRENTLY fly_never ON fly_tasks (name)"));
        Common.same(exists(main, "fly_never"), false);
        Common.fails("42703", () -> Common.one(main, "SELECT max(never) FROM fly_tasks"));
        Common.worked("a migration that fails");
    }

    static void sessionLock(Connection single) throws SQLException {
        Common.same(Common.one(single, "SELECT pg_try_advisory_lock(" + LOCK + ")"), "t");
        Common.run(single, "CREATE INDEX CONCURRENTLY fly_by_name ON fly_tasks (tenant, name)", "CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS fly_by_mood ON fly_tasks (tenant, mood, n)",
            "DROP INDEX CONCURRENTLY fly_by_name", "ALTER TYPE fly_mood ADD VALUE 'happy'", "REINDEX TABLE CONCURRENTLY fly_tasks");
        record(single, "5", "concurrently", true);
        try (Connection other = Common.connect()) {
            Common.same(Common.one(other, "SELECT pg_try_advisory_lock(" + LOCK + ")"), "f");
        }
        Common.same(Common.one(single, "SELECT pg_advisory_unlock(" + LOCK + ")"), "t");
        Common.told("indexes", Common.rows(single, "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'fly_tasks' ORDER BY 1"));
        Common.told("history", Common.rows(single, "SELECT version, description, success FROM " + HISTORY + " ORDER BY installed_rank"));
        Common.worked("concurrent indexes with a lock of the session");
    }

    /** As its command `clean`, but for its own tables only: all that it finds in the catalogue. */
    static void clean(Connection single) throws SQLException {
        String own = " AND relname LIKE 'fly%' ORDER BY relname";
        for (String kind : List.of("v", "r", "S")) {
            for (String name : Common.rows(single, "SELECT relname FROM pg_catalog.pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
                    + "LEFT JOIN pg_depend d ON d.objid = c.oid AND d.deptype IN ('e', 'a') WHERE c.relkind = '" + kind + "' AND n.nspname = 'public' AND d.objid IS NULL" + own)) {
                String what = kind.equals("v") ? "VIEW" : kind.equals("r") ? "TABLE" : "SEQUENCE";
                Common.told("dropped", what + " " + name);
                Common.run(single, "DROP " + what + " IF EXISTS \"public\".\"" + name + "\" CASCADE");
            }
        }
        for (String routine : Common.rows(single, "SELECT proname || '(' || oidvectortypes(proargtypes) || ')' FROM pg_proc JOIN pg_namespace n ON pronamespace = n.oid "
                + "LEFT JOIN pg_depend dep ON dep.objid = pg_proc.oid AND dep.deptype = 'e' WHERE n.nspname = 'public' AND dep.objid IS NULL AND proname LIKE 'fly%'")) {
            Common.run(single, "DROP FUNCTION IF EXISTS \"public\"." + routine + " CASCADE");
        }
        try (Statement statement = single.createStatement()) {
            statement.execute("DROP TYPE \"public\".\"fly_mood\"");
        }
        Common.same(Common.rows(single, "SELECT relname FROM pg_class WHERE relname LIKE 'fly%'"), List.of());
        Common.worked("clean");
    }
}
