//! The container files agree with each other and with the demo: names, ports, health. No engine is needed, so none runs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A service's lines in docker-compose.yml, by its name.
fn services() -> BTreeMap<String, String> {
    let mut services: BTreeMap<String, String> = BTreeMap::new();
    let mut current = None;
    let compose = read("docker-compose.yml");
    let lines = compose.lines().skip_while(|line| *line != "services:").skip(1);
    for line in lines.take_while(|line| line.is_empty() || line.starts_with(' ')) {
        match line.strip_prefix("  ").and_then(|rest| rest.strip_suffix(':')) {
            Some(name) if !name.starts_with(' ') => current = Some(name.to_owned()),
            Some(_) | None => {
                let service = current.as_ref().expect("a service begins with its name");
                let text = services.entry(service.clone()).or_default();
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    services
}

fn read(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

#[test]
fn every_service_that_another_waits_for_exists_and_tells_its_health() {
    let services = services();
    let dockerfile_has_health = read("Dockerfile").contains("HEALTHCHECK");
    let mut waits = 0;
    for (name, text) in &services {
        for line in text.lines().filter_map(|line| line.strip_suffix(": { condition: service_healthy }")) {
            let target = services.get(line.trim()).unwrap_or_else(|| panic!("{name} waits for {line}, which is no service"));
            assert!(target.contains("<<: *postgres") || (target.contains("image: shardgate") && dockerfile_has_health), "{line}");
            waits += 1;
        }
    }
    assert_eq!(waits, 5);
}

#[test]
fn the_shards_are_those_of_the_book_catalogue() {
    let services = services();
    let declare = read("config/demo/declare.sql");
    for shard in ["bookdbshard0", "bookdbshard1", "bookdbshard2"] {
        assert!(services[shard].contains(&format!("POSTGRES_DB: {shard}\n")));
        assert!(services["catalogue"].contains(&format!("--shard={shard}=postgres://")));
        assert!(services["catalogue"].contains(&format!("@{shard}:5432/{shard}\n")));
        assert!(declare.contains(&format!("'{shard}'")));
    }
}

#[test]
fn the_image_listens_where_compose_publishes_and_does_not_run_as_root() {
    let dockerfile = read("Dockerfile");
    let proxy = &services()["proxy"];
    let config = config();
    for (port, address) in [("6432", config.listen.address), ("6433", config.admin.address)] {
        assert_eq!(address.to_string(), format!("0.0.0.0:{port}"));
        assert!(proxy.contains(&format!("127.0.0.1:{port}:{port}")));
    }
    assert!(dockerfile.contains("\nEXPOSE 6432 6433\n"));
    let user = dockerfile.lines().filter_map(|line| line.strip_prefix("USER ")).next_back();
    assert_eq!(user, Some("shardgate"));
}

/// A new shard beside a home shard of the newest version that is supported.
#[test]
fn the_image_can_copy_the_schema_of_the_newest_version() {
    let newest = crate::mixed_versions::VERSIONS.iter().map(|(major, _)| *major).max().expect("versions");
    assert!(read("Dockerfile").contains(&format!("postgresql-client-{newest} ")));
}

/// The proxy's settings as Compose starts the image.
fn config() -> shardgate::config::Config {
    let mut environment: BTreeMap<String, String> = BTreeMap::new();
    for line in services()["proxy"].lines().map(str::trim).filter(|line| line.starts_with("SHARDGATE__")) {
        let (name, value) = line.split_once(": ").unwrap();
        let value = value.replace("${SHARDGATE_PASSWORD:-shardgate}", "shardgate");
        environment.insert(name.to_owned(), value.trim_matches('"').to_owned());
    }
    let environment = environment.into_iter().map(|(name, value)| (name.into(), value.into()));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/container.toml");
    shardgate::config::Config::load_with_environment(Some(&file), environment).unwrap()
}

#[test]
fn the_settings_in_compose_and_the_image_are_settings_of_the_proxy() {
    let config = config();
    assert!(config.auth.users[0].admin);
    assert!(config.map.url.reveal().ends_with("@map:5432/map"));
}

/// Variables of the image would silently win over a file that is mounted.
#[test]
fn the_image_s_own_settings_are_a_file_that_another_can_replace() {
    let dockerfile = read("Dockerfile");
    assert!(!dockerfile.contains("SHARDGATE__"));
    let place = dockerfile.lines().find_map(|line| line.strip_prefix("COPY config/container.toml ")).unwrap();
    assert!(dockerfile.contains(&format!("\nENV SHARDGATE_CONFIG={place}\n")));
    // What the variable names is read.
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_shardgate"));
    let output = command.arg("check").env("SHARDGATE_CONFIG", "/nowhere/shardgate.toml").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nowhere/shardgate.toml"));
}

#[test]
fn the_proxy_has_time_to_drain() {
    let proxy = &services()["proxy"];
    let grace = proxy.lines().find_map(|line| line.trim().strip_prefix("stop_grace_period: ")?.strip_suffix('s')).unwrap();
    // Beside the drain, what tells the last sessions.
    assert!(grace.parse::<u64>().unwrap() * 1000 >= config().listen.drain_timeout_ms + 10_000);
}
