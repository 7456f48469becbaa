//! The metrics of one proxy.
//!
//! Not the `metrics` crate's global recorder: several proxies may live in one process, and a macro's look-up would cost more
//! than what it counts. A counter that is had once and kept is one atomic addition.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::metrics::{Counter, Gauge, Key, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{BuildError, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use parking_lot::Mutex;

use super::histogram::Histogram;
use super::names::{self, Kind};

/// Cheap to clone; all clones count together.
#[derive(Clone)]
pub struct Metrics {
    recorder: Arc<PrometheusRecorder>,
    handle: PrometheusHandle,
    /// Gauges of other shards are not shown: the recorder keeps what it has once been told. `None`: all are.
    shards: Arc<Mutex<Option<Vec<String>>>>,
    histograms: Arc<Mutex<Histograms>>,
}

/// By name and labels, as they are written.
type Histograms = BTreeMap<(&'static str, String), Arc<Histogram>>;

impl Metrics {
    pub fn new() -> Result<Self, BuildError> {
        let recorder = PrometheusBuilder::new().build_recorder();
        for metric in names::ALL {
            let describe = match metric.kind {
                Kind::Counter => PrometheusRecorder::describe_counter,
                Kind::Gauge => PrometheusRecorder::describe_gauge,
                Kind::Histogram => continue,
            };
            describe(&recorder, metric.name.into(), Some(metric.unit), metric.help.into());
        }
        let handle = recorder.handle();
        let metrics = Self { recorder: Arc::new(recorder), handle, shards: Arc::default(), histograms: Arc::default() };
        metrics.gauge(names::BUILD_INFO, &[(names::LABEL_VERSION, env!("CARGO_PKG_VERSION"))]).set(1.0);
        Ok(metrics)
    }

    /// Looks the counter up: keep it where it counts often.
    pub fn counter(&self, name: &'static str, labels: &[(&'static str, &str)]) -> Counter {
        self.recorder.register_counter(&key(name, labels), &METADATA)
    }

    pub fn gauge(&self, name: &'static str, labels: &[(&'static str, &str)]) -> Gauge {
        self.recorder.register_gauge(&key(name, labels), &METADATA)
    }

    /// Looks the histogram up: keep it where it counts often.
    pub fn histogram(&self, name: &'static str, labels: &[(&'static str, &str)]) -> Arc<Histogram> {
        let labels: Vec<String> = labels.iter().map(|(label, value)| written(label, value)).collect();
        Arc::clone(self.histograms.lock().entry((name, labels.join(","))).or_default())
    }

    /// The shards that there are; the gauges of those that are gone vanish.
    pub fn keep_shards<'a>(&self, shards: impl Iterator<Item = &'a str>) {
        *self.shards.lock() = Some(shards.map(shard_label).collect());
    }

    /// All of it in Prometheus's text format.
    pub fn render(&self) -> String {
        let mut text = self.handle.render();
        self.render_histograms(&mut text);
        let kept = self.shards.lock();
        let Some(kept) = kept.as_ref() else { return text };
        let start = format!("{}=\"", names::LABEL_SHARD);
        let is_gone = |line: &str| {
            let is_shard_gauge =
                names::SHARD_GAUGES.iter().any(|name| line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{')));
            is_shard_gauge && line.contains(&start) && !kept.iter().any(|label| line.contains(label.as_str()))
        };
        text.split_inclusive('\n').filter(|line| !is_gone(line)).collect()
    }

    fn render_histograms(&self, out: &mut String) {
        let mut last = "";
        for ((name, labels), histogram) in &*self.histograms.lock() {
            if last != *name {
                let help = names::ALL.iter().find(|metric| metric.name == *name).map_or("", |metric| metric.help);
                out.push_str(&format!("# HELP {name} {help}\n# TYPE {name} histogram\n"));
                last = name;
            }
            histogram.render(name, labels, out);
        }
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

fn shard_label(shard: &str) -> String {
    written(names::LABEL_SHARD, shard)
}

/// As it is written in Prometheus's text format.
fn written(label: &str, value: &str) -> String {
    let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{label}=\"{escaped}\"")
}

fn key(name: &'static str, labels: &[(&'static str, &str)]) -> Key {
    let labels: Vec<Label> = labels.iter().map(|(label, value)| Label::new(*label, (*value).to_owned())).collect();
    Key::from_parts(name, labels)
}

const METADATA: Metadata<'static> = Metadata::new("shardgate", Level::INFO, None);

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn two_proxies_count_apart() {
        let (one, other) = (Metrics::new().expect("built"), Metrics::new().expect("built"));
        let counter = one.counter(names::STATEMENTS, &[(names::LABEL_ROUTE, "single_shard")]);
        counter.increment(2);
        one.clone().counter(names::STATEMENTS, &[(names::LABEL_ROUTE, "single_shard")]).increment(1);
        one.histogram(names::LOGIN_SECONDS, &[]).record(Duration::from_millis(2));
        let text = one.render();
        for line in [
            "# HELP shardgate_statements_total Statements by route.",
            "# TYPE shardgate_statements_total counter",
            "shardgate_statements_total{route=\"single_shard\"} 3",
            "shardgate_login_seconds_bucket{le=\"0.0025\"} 1",
            "shardgate_build_info{version=\"",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
        assert!(!other.render().contains("shardgate_statements_total{"));
    }

    #[test]
    fn the_gauges_of_a_shard_that_is_gone_vanish_and_come_back_with_it() {
        let metrics = Metrics::new().expect("built");
        for shard in ["one", "one more", "odd \"name\\"] {
            metrics.gauge(names::SHARD_UP, &[(names::LABEL_SHARD, shard)]).set(1.0);
            let labels = [(names::LABEL_SHARD, shard), (names::LABEL_STATE, "idle")];
            metrics.gauge(names::POOL_CONNECTIONS, &labels).set(1.0);
        }
        let shown = |metrics: &Metrics| metrics.render().lines().filter(|line| line.contains("shard=\"")).count();
        assert_eq!(shown(&metrics), 6);
        metrics.keep_shards(["one", "odd \"name\\"].into_iter());
        assert_eq!(shown(&metrics), 4, "{}", metrics.render());
        metrics.keep_shards(["one", "one more", "odd \"name\\"].into_iter());
        assert_eq!(shown(&metrics), 6);
        metrics.keep_shards(std::iter::empty());
        assert_eq!(shown(&metrics), 0);
    }
}
