//! Gives an empty shard the home shard's schema: `pg_dump --schema-only` of the one, run on the other in one transaction.
//!
//! PostgreSQL's own tool knows every kind of object; nothing is re-invented here. Left out: the schema `shardgate` (each shard
//! makes its own), publications and subscriptions, tablespaces, and owners when the new server does not know them. Roles are
//! the server's, not the database's: they are not copied, and roles that grants or policies name and that are missing are an
//! error before anything is changed. The password travels in the environment, never on a command line.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Stdio;

use tokio::process::Command;

use super::shard_connection::{ShardConnection, UNABLE_TO_CONNECT, usable};
use crate::catalog::{Relation, quoted_literal, quoted_name};
use crate::error::{PgError, SqlState};

/// Runs the home shard's schema on `target`, which has none. All or nothing.
pub(super) async fn copy(home: &mut ShardConnection, home_url: &str, target: &mut ShardConnection) -> Result<(), PgError> {
    let keeps_owners = check_roles(home, target).await?;
    let script = dump(home, home_url, keeps_owners, &[]).await?;
    apply(target, &script).await.map_err(|error| {
        error.with_hint(
            "The home shard's schema could not be made there: let the server have the same extensions and settings, then call \
             shardgate.add_shard() again.",
        )
    })
}

/// Makes one table that is missing on `target`, with its partitions: the table itself is the first of `family`. What it needs (types,
/// functions) must be there.
pub(super) async fn copy_table(
    home: &mut ShardConnection,
    home_url: &str,
    family: &[&Relation],
    target: &mut ShardConnection,
) -> Result<(), PgError> {
    let Some(relation) = family.first() else { return Ok(()) };
    let keeps_owners = check_roles(home, target).await?;
    let script = dump(home, home_url, keeps_owners, family).await?;
    apply(target, &script).await.map_err(|error| {
        error.with_hint(format!(
            "Table \"{}\" is missing on shard \"{}\" and could not be made there. Make it, with the types and functions it needs.",
            relation.name, target.name
        ))
    })
}

async fn apply(target: &mut ShardConnection, script: &str) -> Result<(), PgError> {
    let script = without_client_commands(script, target.server_version);
    target.run("BEGIN").await?;
    match target.run(&script).await {
        // What the script has set would stay on the connection.
        Ok(()) => {
            target.run("COMMIT").await?;
            target.run("RESET ALL").await?;
            target.settle().await
        }
        Err(error) => {
            target.run("ROLLBACK").await?;
            Err(error)
        }
    }
}

/// Whether the owners can be kept. Roles that are needed and missing are an error.
async fn check_roles(home: &mut ShardConnection, target: &mut ShardConnection) -> Result<bool, PgError> {
    let needed: Vec<String> = home.value(NEEDED_ROLES).await?;
    let owners: Vec<String> = home.value(OWNERS).await?;
    let known: Vec<String> = target.value("SELECT array_agg(rolname::text) FROM pg_roles").await?;
    let missing: Vec<&String> = needed.iter().filter(|role| !known.contains(role)).collect();
    if !missing.is_empty() {
        let list: Vec<String> = missing.iter().map(|role| format!("\"{role}\"")).collect();
        return Err(PgError::new(
            SqlState::UNDEFINED_OBJECT,
            format!("roles that the home shard's schema names are missing on shard \"{}\"", target.name),
        )
        .with_detail(format!("Grants or policies name these roles: {}.", list.join(", ")))
        .with_hint("Create them there, for instance with pg_dumpall --roles-only, then call shardgate.add_shard() again."));
    }
    if !owners.iter().all(|owner| known.contains(owner)) {
        return Ok(false);
    }
    let list: Vec<String> = owners.iter().map(|owner| quoted_literal(owner)).collect();
    let list = if list.is_empty() { "NULL".to_owned() } else { list.join(", ") };
    let may_become =
        format!("SELECT coalesce(bool_and(pg_has_role(rolname, 'MEMBER')), true) FROM pg_roles WHERE rolname IN ({list})");
    target.value(&may_become).await
}

// Roles in privileges and policies; not those that every server has.
const NEEDED_ROLES: &str = "
SELECT coalesce(array_agg(DISTINCT r.rolname::text), '{}')
FROM (SELECT (aclexplode(c.relacl)).grantee AS role FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
      WHERE n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'shardgate')
      UNION SELECT (aclexplode(p.proacl)).grantee FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
      WHERE n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'shardgate')
      UNION SELECT (aclexplode(n.nspacl)).grantee FROM pg_namespace n
      WHERE n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'shardgate')
      UNION SELECT (aclexplode(d.defaclacl)).grantee FROM pg_default_acl d
      UNION SELECT d.defaclrole FROM pg_default_acl d
      UNION SELECT unnest(p.polroles) FROM pg_policy p) needed
JOIN pg_roles r ON r.oid = needed.role
WHERE r.rolname !~ '^pg_'";

const OWNERS: &str = "
SELECT coalesce(array_agg(DISTINCT pg_get_userbyid(owner)::text), '{}')
FROM (SELECT c.relowner AS owner FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
      WHERE n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'shardgate')
      UNION SELECT p.proowner FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
      WHERE n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'shardgate')
      UNION SELECT t.typowner FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
      WHERE n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'shardgate')
      UNION SELECT n.nspowner FROM pg_namespace n
      WHERE n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'shardgate', 'public')) owners";

/// `only`: these tables; none: everything. In a snapshot of `home`, which is known to lead to the shard's own database: pg_dump, which asks
/// nobody where it is, cannot read by it elsewhere.
async fn dump(home: &mut ShardConnection, home_url: &str, keeps_owners: bool, only: &[&Relation]) -> Result<String, PgError> {
    home.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
    let snapshot = home.value("SELECT pg_export_snapshot()").await?;
    let dumped = dump_by(home, home_url, snapshot, (keeps_owners, only)).await;
    home.run("ROLLBACK").await?;
    dumped
}

async fn dump_by(
    home: &ShardConnection,
    home_url: &str,
    snapshot: String,
    (keeps_owners, only): (bool, &[&Relation]),
) -> Result<String, PgError> {
    let program = find_pg_dump(home.server_version / 10_000).await?;
    let url = usable(&home.name, home_url)?;
    let password = url
        .any_password()
        .map_err(|error| PgError::internal("the home shard's password is gone").with_detail(error.to_string()))?;
    let mut command = Command::new(program);
    command
        .args(["--schema-only", "--no-publications", "--no-subscriptions", "--no-tablespaces", "--exclude-schema=shardgate"])
        .args(["--no-password", "--lock-wait-timeout=30s"])
        .arg(format!("--snapshot={snapshot}"))
        .args(if keeps_owners { &[][..] } else { &["--no-owner"][..] })
        .args(only.iter().map(|relation| format!("--table={}", quoted_name(&relation.schema, &relation.name))))
        // Everybody on the machine can read a command line: without the password.
        .arg(format!("--dbname={}", url.conninfo_with_options()))
        .env_remove("PGOPTIONS")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    if let Some(password) = password {
        command.env("PGPASSWORD", password.reveal());
    }
    let output = command.output().await.map_err(|error| {
        PgError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "could not run pg_dump").with_detail(format!("{}.", error.kind()))
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(PgError::new(UNABLE_TO_CONNECT, format!("pg_dump could not read the schema of home shard \"{}\"", home.name))
            .with_detail(said.trim().to_owned())
            .with_hint(
                "It connects by the home shard's url, to the server on which the shard's database is now; call the function again.",
            ));
    }
    String::from_utf8(output.stdout).map_err(|_| PgError::internal("pg_dump wrote text that is not UTF-8"))
}

/// The `pg_dump` that fits the home server: of its version, else the next newer one, since an older one refuses.
async fn find_pg_dump(server_major: i32) -> Result<PathBuf, PgError> {
    let mut found: Vec<(i32, PathBuf)> = Vec::new();
    for candidate in candidates().await {
        if let Some(major) = major_version(&candidate).await {
            found.push((major, candidate));
        }
    }
    let seen: BTreeSet<i32> = found.iter().map(|(major, _)| *major).collect();
    found.retain(|(major, _)| *major >= server_major);
    found.sort_by_key(|(major, _)| *major);
    found.into_iter().next().map(|(_, program)| program).ok_or_else(|| without_pg_dump(server_major, &seen))
}

/// `seen`: major versions of what is installed.
fn without_pg_dump(server_major: i32, seen: &BTreeSet<i32>) -> PgError {
    let versions: Vec<String> = seen.iter().map(ToString::to_string).collect();
    let detail = match seen.is_empty() {
        true => "The program pg_dump is not installed where the proxy runs.".to_owned(),
        false => format!(
            "The home shard's server has version {server_major}, and where the proxy runs pg_dump has version {}.",
            versions.join(", ")
        ),
    };
    PgError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "cannot copy the home shard's schema without a fitting pg_dump")
        .with_detail(detail)
        .with_hint(format!(
            "Install PostgreSQL's client programs of version {server_major} or newer where the proxy runs (Debian and Ubuntu: \
             postgresql-client-{server_major}, from apt.postgresql.org where the system does not have it), or load the schema into the \
             new shard yourself."
        ))
}

/// Where servers are looked for too: PATH, `pg_config --bindir`, the Debian layout.
async fn candidates() -> Vec<PathBuf> {
    let mut directories: Vec<PathBuf> =
        std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default();
    if let Ok(output) = Command::new("pg_config").arg("--bindir").stdin(Stdio::null()).output().await {
        directories.push(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    }
    if let Ok(versions) = std::fs::read_dir("/usr/lib/postgresql") {
        directories.extend(versions.filter_map(Result::ok).map(|version| version.path().join("bin")));
    }
    let mut programs: Vec<PathBuf> = directories.into_iter().map(|directory| directory.join("pg_dump")).collect();
    programs.retain(|program| program.is_file());
    programs.dedup();
    programs
}

/// `pg_dump (PostgreSQL) 15.4 (Debian …)` → 15.
async fn major_version(program: &PathBuf) -> Option<i32> {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output().await.ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let version = text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    version.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok()
}

/// A script for psql as statements for a server: without psql's own commands, and without a setting that a newer pg_dump knows
/// and an older server does not.
fn without_client_commands(script: &str, server_version: i32) -> String {
    let mut kept = String::with_capacity(script.len());
    // pg_dump writes these lines outside of any statement; a function's body may hold a line that looks like one.
    let mut restrict_token = None;
    for line in script.split_inclusive('\n') {
        if let (None, Some(token)) = (&restrict_token, line.strip_prefix("\\restrict ")) {
            restrict_token = Some(token.trim_end().to_owned());
            continue;
        }
        let is_unrestrict = restrict_token.as_ref().is_some_and(|token| line.trim_end() == format!("\\unrestrict {token}"));
        let is_new_setting = server_version < 170_000 && line == "SET transaction_timeout = 0;\n";
        if !is_unrestrict && !is_new_setting {
            kept.push_str(line);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_pg_dump_is_said_once_with_what_to_install() {
        let error = without_pg_dump(18, &[15, 17, 15].into_iter().collect());
        let (detail, hint) = (error.detail.unwrap_or_default(), error.hint.unwrap_or_default());
        assert_eq!(detail, "The home shard's server has version 18, and where the proxy runs pg_dump has version 15, 17.");
        assert!(hint.contains("postgresql-client-18, from apt.postgresql.org"), "{hint}");
        assert!(without_pg_dump(18, &BTreeSet::new()).detail.is_some_and(|detail| detail.contains("is not installed")));
    }

    #[test]
    fn commands_of_psql_are_left_out_and_bodies_kept() {
        let script =
            "\\restrict abc\nSET a = 1;\nSET transaction_timeout = 0;\nAS '\n\\restrict x\n\\unrestrict y\n';\n\\unrestrict abc\n";
        assert_eq!(without_client_commands(script, 150_000), "SET a = 1;\nAS '\n\\restrict x\n\\unrestrict y\n';\n");
        assert!(without_client_commands(script, 170_000).contains("transaction_timeout"));
    }
}
