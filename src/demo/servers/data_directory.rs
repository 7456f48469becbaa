//! Data directories: made by `initdb`, or copied from a cached one.
//!
//! A directory appears under its name only when it is complete: it is made beside it, as `NAME.partial`, and renamed, so that
//! a start that was cut short leaves nothing that looks usable. Copies share the system identifier of their template;
//! whoever needs servers with different identifiers asks for a fresh `initdb`.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::settings::include_settings;
use super::{Account, PostgresInstallation, ServerError};

/// Makes `data` by `initdb`. It must not exist. Text sorts bytewise, so that the proxy can merge by it what several shards have
/// sorted.
pub(super) fn initialise(installation: &PostgresInstallation, account: Account, data: &Path) -> Result<(), ServerError> {
    let partial = start_over(account, data)?;
    let initdb = installation.program("initdb");
    let output = account
        .command(&initdb)
        .args(["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C.UTF-8", "--lc-collate=C", "--no-sync"])
        .arg("--pgdata")
        .arg(&partial)
        .output()
        .map_err(|source| ServerError::Spawn { program: initdb.clone(), source })?;
    if !output.status.success() {
        return Err(ServerError::Program { program: initdb, output: String::from_utf8_lossy(&output.stderr).trim().to_owned() });
    }
    include_settings(account, &partial)?;
    fs::rename(&partial, data).map_err(ServerError::file("rename", &partial))
}

/// Makes `data` as a copy of a template for this version in the directory `cache`, which is made first where it is missing.
/// Processes that need it at the same time wait for the first one.
pub(super) fn copy_from_template(
    installation: &PostgresInstallation,
    account: Account,
    cache: &Path,
    data: &Path,
) -> Result<(), ServerError> {
    let template = template(installation, account, cache)?;
    let partial = start_over(account, data)?;
    copy_tree(account, &template, &partial)?;
    fs::rename(&partial, data).map_err(ServerError::file("rename", &partial))
}

fn template(installation: &PostgresInstallation, account: Account, cache: &Path) -> Result<PathBuf, ServerError> {
    let owner = match account {
        Account::Own => rustix::process::geteuid().as_raw(),
        Account::Dropped { uid, .. } => uid,
    };
    fs::create_dir_all(cache).map_err(ServerError::file("create directory", cache))?;
    let name = format!("data-c-{}-{owner}", installation.version());
    let template = cache.join(&name);
    if template.join("PG_VERSION").is_file() {
        return Ok(template);
    }
    let lock_path = cache.join(format!("{name}.lock"));
    let lock = File::create(&lock_path).map_err(ServerError::file("create", &lock_path))?;
    lock.lock().map_err(ServerError::file("lock", &lock_path))?;
    if !template.join("PG_VERSION").is_file() {
        initialise(installation, account, &template)?;
    }
    Ok(template)
}

/// An empty `NAME.partial` for a directory to come, without what an earlier attempt left there.
fn start_over(account: Account, data: &Path) -> Result<PathBuf, ServerError> {
    let mut name = data.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    let partial = data.with_file_name(name);
    remove_tree(&partial)?;
    account.create_directory(&partial)?;
    Ok(partial)
}

/// Removes a directory with all it holds; missing is fine.
pub(super) fn remove_tree(path: &Path) -> Result<(), ServerError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(ServerError::file("remove", path)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Copies files and directories into an existing directory. A data directory that `initdb` has made holds nothing else.
fn copy_tree(account: Account, from: &Path, to: &Path) -> Result<(), ServerError> {
    for entry in fs::read_dir(from).map_err(ServerError::file("read directory", from))? {
        let entry = entry.map_err(ServerError::file("read directory", from))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().map_err(ServerError::file("look at", &source))?;
        if kind.is_dir() {
            fs::create_dir(&target).map_err(ServerError::file("create directory", &target))?;
            fs::set_permissions(&target, fs::Permissions::from_mode(0o700))
                .map_err(ServerError::file("set the permissions of", &target))?;
            copy_tree(account, &source, &target)?;
        } else {
            fs::copy(&source, &target).map_err(ServerError::file("copy", &source))?;
        }
        account.take_over(&target)?;
    }
    Ok(())
}
