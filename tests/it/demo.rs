//! `shardgate demo`: ready with the catalogue, found again, stopped in order, and repaired after it was killed anywhere.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use shardgate::demo::servers::{free_port, is_free_port};
use tempfile::TempDir;

use crate::support::{psql_output, psql_rows};

/// A directory for one demo, which is stopped when this is dropped.
struct Demo {
    directory: TempDir,
    port: u16,
}

impl Demo {
    fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("shardgate-demo-").tempdir().unwrap();
        // As root the servers run under another account, which has to get in.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let port = std::iter::repeat_with(|| free_port().unwrap()).find(|port| is_free_port(port + 1)).unwrap();
        Demo { directory, port }
    }

    fn dir(&self) -> PathBuf {
        self.directory.path().join("cluster")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shardgate"));
        command.arg("demo").args(arguments).arg("--dir").arg(self.dir()).stdin(Stdio::null());
        command
    }

    fn start(&self) -> Output {
        self.command(&["--detach", "--port", &self.port.to_string()]).output().unwrap()
    }

    fn stop(&self) -> String {
        let output = self.command(&["stop"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn pid(&self) -> Pid {
        let text = fs::read_to_string(self.dir().join("demo.lock")).unwrap();
        Pid::from_raw(text.parse().unwrap()).unwrap()
    }

    fn conninfo(&self) -> String {
        format!("host=127.0.0.1 port={} user=postgres dbname=app", self.port)
    }

    fn psql(&self, script: &str) -> String {
        psql_rows(&self.conninfo(), script)
    }

    /// The postmasters of the servers, as they say themselves.
    fn postmasters(&self) -> Vec<Pid> {
        let pid_file = |server: &str| self.dir().join("servers").join(server).join("data/postmaster.pid");
        ["map", "bookdbshard0", "bookdbshard1", "bookdbshard2"]
            .iter()
            .filter_map(|server| fs::read_to_string(pid_file(server)).ok())
            .filter_map(|text| Pid::from_raw(text.lines().next()?.parse().ok()?))
            .collect()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        if let Err(error) = self.command(&["stop"]).output() {
            eprintln!("the demo was not stopped: {error}");
        }
    }
}

fn assert_ready(output: &Output) {
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stderr}");
    assert!(stdout.contains("psql -h 127.0.0.1 -p"), "{stdout}");
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn is_gone(pid: &Pid) -> bool {
    test_kill_process(*pid).is_err()
}

#[test]
fn the_catalogue_is_there_and_a_second_start_finds_it() {
    let demo = Demo::new();
    assert_ready(&demo.start());
    assert_eq!(demo.psql("SELECT name FROM shardgate.shards ORDER BY name"), "bookdbshard0\nbookdbshard1\nbookdbshard2");
    assert_eq!(demo.psql("SELECT title FROM books WHERE isbn = '0200002090'"), "A Short History of Kitchens");
    assert_eq!(demo.psql("SELECT name FROM languages WHERE code = 'ita'"), "Italian");
    assert_eq!(demo.psql("SELECT name IS NOT NULL FROM readers WHERE id = 600"), "t");
    demo.psql("UPDATE books SET price = 1.25 WHERE isbn = '0200002090'");

    // While it runs, another start is content with it, and a start in the foreground names its owner.
    assert_ready(&demo.start());
    let second = demo.command(&["--port", &demo.port.to_string()]).output().unwrap();
    assert!(String::from_utf8_lossy(&second.stderr).contains(&format!("as process {}", demo.pid().as_raw_nonzero())));

    let postmasters = demo.postmasters();
    assert_eq!(postmasters.len(), 4);
    assert_eq!(demo.stop(), "shardgate demo: stopped\n");
    assert!(postmasters.iter().all(is_gone));
    assert!(!psql_output(&demo.conninfo(), &["-c", "SELECT 1"]).status.success());
    assert!(demo.stop().contains("none runs"));

    assert_ready(&demo.start());
    assert_eq!(demo.psql("SELECT price FROM books WHERE isbn = '0200002090'"), "1.25");
}

#[test]
fn each_key_of_the_catalogue_is_on_the_shard_that_its_table_says() {
    let demo = Demo::new();
    assert_ready(&demo.start());
    let expected = "0|bookdbshard0;1|bookdbshard0;2|bookdbshard0;3|bookdbshard1;4|bookdbshard1;5|bookdbshard1;\
                    6|bookdbshard2;7|bookdbshard2;8|bookdbshard2;9|bookdbshard0;X|bookdbshard1";
    let keys = "SELECT k.key, p.shard FROM shardgate.lookup_keys k JOIN shardgate.partitions p USING (partition_id) ORDER BY k.key";
    assert_eq!(demo.psql(keys).replace('\n', ";"), expected);
    // What lies there, asked of each shard itself.
    for (shard, characters) in [("bookdbshard0", "0,1,2,9"), ("bookdbshard1", "3,4,5,X"), ("bookdbshard2", "6,7,8")] {
        let port = fs::read_to_string(demo.dir().join("servers").join(shard).join("port")).unwrap();
        let direct = format!("host=127.0.0.1 port={port} user=postgres dbname={shard}");
        for table in ["books", "library_of_congress_catalog"] {
            let there = psql_rows(&direct, &format!("SELECT string_agg(DISTINCT right(isbn, 1), ',' ORDER BY right(isbn, 1)) FROM {table}"));
            assert_eq!(there, characters, "{table} on {shard}");
        }
        assert_eq!(psql_rows(&direct, "SELECT count(*) FROM languages"), "11");
        assert_ne!(psql_rows(&direct, "SELECT count(*) FROM readers"), "0");
    }
}

#[test]
fn a_killed_demo_leaves_no_process_and_starts_again() {
    let demo = Demo::new();
    assert_ready(&demo.start());
    let postmasters = demo.postmasters();
    kill_process(demo.pid(), Signal::KILL).unwrap();
    wait_until("a server outlived the demo", || postmasters.iter().all(is_gone));
    assert_ready(&demo.start());
    assert_eq!(demo.psql("SELECT title FROM books WHERE isbn = '0200002090'"), "A Short History of Kitchens");
}

#[test]
fn a_start_that_was_killed_half_way_is_taken_up_by_the_next() {
    let demo = Demo::new();
    let beginnings: [&dyn Fn(&Path) -> bool; 3] = [
        &|dir| dir.join("servers/map").is_dir(),
        &|dir| dir.join("servers/bookdbshard1/data").is_dir(),
        &|dir| dir.join("shardgate.toml").is_file(),
    ];
    for begun in beginnings {
        let mut first = start_in_foreground(&demo);
        wait_until("the demo did not begin", || begun(&demo.dir()));
        first.kill().unwrap();
        first.wait().unwrap();
    }
    assert_ready(&demo.start());
    assert_eq!(demo.psql("SELECT class IS NOT NULL FROM library_of_congress_catalog WHERE isbn = '0200002090'"), "t");
}

fn start_in_foreground(demo: &Demo) -> Child {
    demo.command(&["--port", &demo.port.to_string()]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}
