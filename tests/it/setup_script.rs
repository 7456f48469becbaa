//! `scripts/setup.sh` with a toolchain that lacks what `make test` needs. The programs that it calls are stand-ins: nothing is installed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

fn program(directory: &Path, name: &str, script: &str) {
    let path = directory.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
}

/// Runs it with these stand-ins before everything else on the path.
fn setup(directory: &Path, stand_ins: &[(&str, &str)]) -> Output {
    for name in ["apt-get", "sudo"] {
        program(directory, name, "exit 1");
    }
    for (name, script) in stand_ins {
        program(directory, name, script);
    }
    let path = format!("{}:{}", directory.display(), std::env::var("PATH").expect("a path"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/setup.sh");
    Command::new("sh").arg(script).env("PATH", path).output().expect("run")
}

#[test]
fn rustfmt_and_clippy_are_added_to_a_minimal_toolchain() {
    let directory = tempfile::tempdir().expect("a directory");
    let calls = directory.path().join("calls");
    let rustup = format!("echo \"$*\" >> {}", calls.display());
    let output = setup(directory.path(), &[("cargo", "[ \"$1\" != clippy ]"), ("rustup", &rustup)]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read_to_string(&calls).expect("rustup was called"), "component add rustfmt clippy\n");
}

#[test]
fn a_build_goes_on_where_they_cannot_be_added_and_nothing_is_added_where_they_are() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = setup(directory.path(), &[("cargo", "[ \"$1\" != fmt ]"), ("rustup", "exit 1")]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("make lint and make test need them"));
    let output = setup(directory.path(), &[("cargo", "exit 0"), ("rustup", "exit 1")]);
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
}
