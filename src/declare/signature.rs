//! The functions of the schema `shardgate`: names, parameters, defaults and results, as data.
//!
//! What a client may call and how is decided here alone; the modules beside this one do what the functions say. Names that
//! Citus users know are functions of their own with Citus's parameters.

use std::fmt;

use crate::shard_key::{Oid, oid};

/// One function that a client may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::enum_variant_names, reason = "declare_function is its name")]
pub(super) enum Function {
    AddShard,
    AlterShard,
    DropShard,
    DistributeTable,
    ReferenceTable,
    MapKey,
    MapKeys,
    SetDefaultShard,
    SplitPartition,
    MergePartitions,
    TimePartitions,
    MovePartition,
    MovePartitions,
    IsolateKey,
    Rebalance,
    RedistributeTable,
    Locate,
    DeclareFunction,
    UniqueId,
    CreateDistributedTable,
    CreateReferenceTable,
    UndistributeTable,
    DistributeTables,
    RebalanceTableShards,
    CitusMoveShardPlacement,
    PlanTables,
}

/// Type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Integer,
    Float,
    Boolean,
    Json,
    TextArray,
    IntegerArray,
}

/// What a parameter is when the call does not give it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Default {
    /// The call must give it.
    None,
    Null,
    Text(&'static str),
    Integer(i32),
    Float(f64),
    Boolean(bool),
    EmptyArray,
    /// The call may give any number, each of them a text.
    Variadic,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) default: Default,
}

impl Kind {
    pub(super) fn oid(self) -> Oid {
        match self {
            Kind::Text => oid::TEXT,
            Kind::Integer => oid::INT4,
            Kind::Float => oid::FLOAT8,
            Kind::Boolean => oid::BOOL,
            Kind::Json => oid::JSONB,
            Kind::TextArray => oid::TEXT_ARRAY,
            Kind::IntegerArray => oid::INT4_ARRAY,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Text => "text",
            Kind::Integer => "integer",
            Kind::Float => "double precision",
            Kind::Boolean => "boolean",
            Kind::Json => "jsonb",
            Kind::TextArray => "text[]",
            Kind::IntegerArray => "integer[]",
        }
    }
}

impl Function {
    pub(super) const ALL: [Function; 26] = [
        Function::AddShard,
        Function::AlterShard,
        Function::DropShard,
        Function::DistributeTable,
        Function::ReferenceTable,
        Function::MapKey,
        Function::MapKeys,
        Function::SetDefaultShard,
        Function::SplitPartition,
        Function::MergePartitions,
        Function::TimePartitions,
        Function::MovePartition,
        Function::MovePartitions,
        Function::IsolateKey,
        Function::Rebalance,
        Function::RedistributeTable,
        Function::Locate,
        Function::DeclareFunction,
        Function::UniqueId,
        Function::CreateDistributedTable,
        Function::CreateReferenceTable,
        Function::UndistributeTable,
        Function::DistributeTables,
        Function::RebalanceTableShards,
        Function::CitusMoveShardPlacement,
        Function::PlanTables,
    ];

    pub(super) fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|function| function.name() == name)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Function::AddShard => "add_shard",
            Function::AlterShard => "alter_shard",
            Function::DropShard => "drop_shard",
            Function::DistributeTable => "distribute_table",
            Function::ReferenceTable => "reference_table",
            Function::MapKey => "map_key",
            Function::MapKeys => "map_keys",
            Function::SetDefaultShard => "set_default_shard",
            Function::SplitPartition => "split_partition",
            Function::MergePartitions => "merge_partitions",
            Function::TimePartitions => "time_partitions",
            Function::MovePartition => "move_partition",
            Function::MovePartitions => "move_partitions",
            Function::IsolateKey => "isolate_key",
            Function::Rebalance => "rebalance",
            Function::RedistributeTable => "redistribute_table",
            Function::Locate => "locate",
            Function::DeclareFunction => "declare_function",
            Function::UniqueId => "unique_id",
            Function::CreateDistributedTable => "create_distributed_table",
            Function::UndistributeTable => "undistribute_table",
            Function::DistributeTables => "distribute_tables",
            Function::RebalanceTableShards => "rebalance_table_shards",
            Function::CitusMoveShardPlacement => "citus_move_shard_placement",
            Function::CreateReferenceTable => "create_reference_table",
            Function::PlanTables => "plan_tables",
        }
    }

    /// With `dry_run` it changes nothing.
    pub(super) fn has_dry_run(self) -> bool {
        self.parameters().iter().any(|parameter| parameter.name == "dry_run")
    }

    /// Whether it only reads, or draws an id, which every user may.
    pub(super) fn only_reads(self) -> bool {
        match self {
            // What it reads of tables it tells as counts and shares, never as values.
            Function::Locate | Function::UniqueId | Function::PlanTables => true,
            Function::AddShard
            | Function::AlterShard
            | Function::DropShard
            | Function::DistributeTable
            | Function::ReferenceTable
            | Function::MapKey
            | Function::MapKeys
            | Function::SetDefaultShard
            | Function::SplitPartition
            | Function::MergePartitions
            | Function::TimePartitions
            | Function::MovePartition
            | Function::MovePartitions
            | Function::IsolateKey
            | Function::Rebalance
            | Function::RedistributeTable
            | Function::DeclareFunction
            | Function::CreateDistributedTable
            | Function::CreateReferenceTable
            | Function::UndistributeTable
            | Function::DistributeTables
            | Function::RebalanceTableShards
            | Function::CitusMoveShardPlacement => false,
        }
    }

    pub(super) fn parameters(self) -> &'static [Parameter] {
        match self {
            Function::AddShard => ADD_SHARD,
            Function::AlterShard => ALTER_SHARD,
            Function::DropShard => const { &[required("name", Kind::Text)] },
            Function::DistributeTable => DISTRIBUTE_TABLE,
            Function::ReferenceTable => const { &[required("table_name", Kind::Text)] },
            Function::MapKey | Function::IsolateKey => {
                const { &[required("table_name", Kind::Text), required("key", Kind::Text), required("shard", Kind::Text)] }
            }
            Function::MapKeys => {
                const { &[required("table_name", Kind::Text), required("keys", Kind::TextArray), required("shard", Kind::Text)] }
            }
            Function::SetDefaultShard => const { &[required("table_name", Kind::Text), required("shard", Kind::Text)] },
            Function::SplitPartition => {
                const {
                    &[
                        required("partition", Kind::Integer),
                        required("at", Kind::Text),
                        optional("shard", Kind::Text, Default::Null),
                    ]
                }
            }
            Function::MergePartitions => const { &[required("a", Kind::Integer), required("b", Kind::Integer)] },
            Function::TimePartitions => TIME_PARTITIONS,
            Function::MovePartition => const { &[required("partition", Kind::Integer), required("to_shard", Kind::Text)] },
            Function::MovePartitions => const { &[required("partitions", Kind::IntegerArray), required("to_shard", Kind::Text)] },
            Function::Rebalance => REBALANCE,
            Function::RedistributeTable => REDISTRIBUTE_TABLE,
            Function::Locate => {
                const { &[required("table_name", Kind::Text), optional("key", Kind::TextArray, Default::Variadic)] }
            }
            Function::DeclareFunction => DECLARE_FUNCTION,
            Function::UniqueId => &[],
            Function::CreateDistributedTable => CREATE_DISTRIBUTED_TABLE,
            Function::CreateReferenceTable => const { &[required("table_name", Kind::Text)] },
            Function::DistributeTables => DISTRIBUTE_TABLES,
            Function::RebalanceTableShards => {
                const { &[optional("relation", Kind::Text, Default::Null), optional("threshold", Kind::Float, Default::Float(0.1))] }
            }
            Function::CitusMoveShardPlacement => CITUS_MOVE_SHARD_PLACEMENT,
            Function::PlanTables => {
                const {
                    &[
                        optional("keys", Kind::Json, Default::Null),
                        optional("reference_tables", Kind::TextArray, Default::EmptyArray),
                    ]
                }
            }
            Function::UndistributeTable => UNDISTRIBUTE_TABLE,
        }
    }

    /// Names and types of the result's columns.
    pub(super) fn result(self) -> Vec<(String, Oid)> {
        let one = |type_oid: Oid| vec![(self.name().to_owned(), type_oid)];
        match self {
            Function::AddShard
            | Function::AlterShard
            | Function::DropShard
            | Function::DistributeTable
            | Function::ReferenceTable
            | Function::TimePartitions
            | Function::DeclareFunction
            | Function::CreateDistributedTable
            | Function::CreateReferenceTable
            | Function::DistributeTables
            | Function::RebalanceTableShards
            | Function::CitusMoveShardPlacement => one(oid::VOID),
            // The partition that now holds the key, how many keys were mapped, the partition that is the default, was made, was kept;
            // the move, or NULL where nothing has to move.
            Function::MapKey
            | Function::MapKeys
            | Function::SetDefaultShard
            | Function::SplitPartition
            | Function::MergePartitions
            | Function::MovePartition
            | Function::MovePartitions
            | Function::IsolateKey => one(oid::INT4),
            Function::UniqueId => one(oid::INT8),
            Function::Rebalance | Function::RedistributeTable | Function::UndistributeTable => vec![
                ("move_id".to_owned(), oid::INT4),
                ("source".to_owned(), oid::TEXT),
                ("target".to_owned(), oid::TEXT),
                ("partitions".to_owned(), oid::INT4),
                ("rows".to_owned(), oid::INT8),
                ("bytes".to_owned(), oid::INT8),
                ("expected_seconds".to_owned(), oid::FLOAT8),
                ("state".to_owned(), oid::TEXT),
            ],
            Function::PlanTables => vec![
                ("step".to_owned(), oid::INT4),
                ("kind".to_owned(), oid::TEXT),
                ("table_name".to_owned(), oid::TEXT),
                ("statement".to_owned(), oid::TEXT),
                ("reason".to_owned(), oid::TEXT),
                ("warning".to_owned(), oid::TEXT),
            ],
            Function::Locate => {
                vec![("partition_id".to_owned(), oid::INT4), ("shard".to_owned(), oid::TEXT), ("epoch".to_owned(), oid::INT8)]
            }
        }
    }
}

const fn required(name: &'static str, kind: Kind) -> Parameter {
    Parameter { name, kind, default: Default::None }
}

const fn optional(name: &'static str, kind: Kind, default: Default) -> Parameter {
    Parameter { name, kind, default }
}

const ADD_SHARD: &[Parameter] = &[
    required("name", Kind::Text),
    required("url", Kind::Text),
    optional("region", Kind::Text, Default::Null),
    optional("capacity", Kind::Float, Default::Float(1.0)),
    optional("replication_url", Kind::Text, Default::Null),
];

const ALTER_SHARD: &[Parameter] = &[
    required("name", Kind::Text),
    optional("url", Kind::Text, Default::Null),
    optional("region", Kind::Text, Default::Null),
    optional("capacity", Kind::Float, Default::Null),
    optional("replication_url", Kind::Text, Default::Null),
    optional("state", Kind::Text, Default::Null),
];

const DISTRIBUTE_TABLE: &[Parameter] = &[
    required("table_name", Kind::Text),
    required("key", Kind::Text),
    optional("strategy", Kind::Text, Default::Text("hash")),
    optional("colocate_with", Kind::Text, Default::Null),
    optional("partitions", Kind::Integer, Default::Integer(64)),
    optional("on_shards", Kind::Text, Default::Text("all")),
    optional("bounds", Kind::TextArray, Default::Null),
    optional("planned_shards", Kind::Integer, Default::Null),
];

const TIME_PARTITIONS: &[Parameter] = &[
    required("table_name", Kind::Text),
    required("every", Kind::Text),
    optional("ahead", Kind::Integer, Default::Integer(3)),
    optional("on_shards", Kind::Text, Default::Text("all")),
];

const REBALANCE: &[Parameter] = &[
    optional("table_name", Kind::Text, Default::Null),
    optional("by", Kind::Text, Default::Text("bytes")),
    optional("threshold", Kind::Float, Default::Float(0.1)),
    optional("drain", Kind::Text, Default::Null),
    optional("dry_run", Kind::Boolean, Default::Boolean(false)),
];

const REDISTRIBUTE_TABLE: &[Parameter] = &[
    required("table_name", Kind::Text),
    optional("dry_run", Kind::Boolean, Default::Boolean(false)),
    optional("key", Kind::Text, Default::Null),
    optional("strategy", Kind::Text, Default::Null),
    optional("colocate_with", Kind::Text, Default::Null),
    optional("planned_shards", Kind::Integer, Default::Null),
    optional("with_colocated", Kind::Boolean, Default::Boolean(false)),
];

const UNDISTRIBUTE_TABLE: &[Parameter] = &[
    required("table_name", Kind::Text),
    optional("cascade_via_foreign_keys", Kind::Boolean, Default::Boolean(false)),
    optional("dry_run", Kind::Boolean, Default::Boolean(false)),
    optional("with_colocated", Kind::Boolean, Default::Boolean(false)),
];

const DECLARE_FUNCTION: &[Parameter] = &[
    required("function_name", Kind::Text),
    optional("reads", Kind::TextArray, Default::EmptyArray),
    optional("writes", Kind::TextArray, Default::EmptyArray),
    optional("key_argument", Kind::Integer, Default::Null),
];

const CREATE_DISTRIBUTED_TABLE: &[Parameter] = &[
    required("table_name", Kind::Text),
    required("distribution_column", Kind::Text),
    optional("distribution_type", Kind::Text, Default::Text("hash")),
    optional("colocate_with", Kind::Text, Default::Text("default")),
    optional("shard_count", Kind::Integer, Default::Null),
];

const DISTRIBUTE_TABLES: &[Parameter] = &[
    required("keys", Kind::Json),
    optional("strategy", Kind::Text, Default::Text("hash")),
    optional("colocate_with", Kind::Text, Default::Null),
    optional("partitions", Kind::Integer, Default::Integer(64)),
    optional("on_shards", Kind::Text, Default::Text("all")),
    optional("bounds", Kind::TextArray, Default::Null),
    optional("planned_shards", Kind::Integer, Default::Null),
];

const CITUS_MOVE_SHARD_PLACEMENT: &[Parameter] = &[
    required("shard_id", Kind::Integer),
    required("source_node_name", Kind::Text),
    required("source_node_port", Kind::Integer),
    required("target_node_name", Kind::Text),
    required("target_node_port", Kind::Integer),
    optional("shard_transfer_mode", Kind::Text, Default::Text("auto")),
];

impl fmt::Display for Function {
    /// As it would be declared: for hints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shardgate.{}(", self.name())?;
        for (index, parameter) in self.parameters().iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            let (name, kind) = (parameter.name, parameter.kind.name());
            match parameter.default {
                Default::None => write!(f, "{name} {kind}")?,
                Default::Null => write!(f, "{name} {kind} DEFAULT NULL")?,
                Default::Text(text) => write!(f, "{name} {kind} DEFAULT '{text}'")?,
                Default::Integer(value) => write!(f, "{name} {kind} DEFAULT {value}")?,
                Default::Boolean(value) => write!(f, "{name} {kind} DEFAULT {value}")?,
                Default::Float(value) => write!(f, "{name} {kind} DEFAULT {value}")?,
                Default::EmptyArray => write!(f, "{name} {kind} DEFAULT '{{}}'")?,
                Default::Variadic => write!(f, "VARIADIC {name} {kind}")?,
            }
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::utility::shardgate_call::{Answers, FUNCTIONS, VARIADIC};

    /// How statements that call them are read knows the same functions.
    #[test]
    fn statements_know_the_same_functions() {
        assert!(FUNCTIONS.is_sorted_by_key(|(name, _)| *name));
        assert_eq!(FUNCTIONS.len(), Function::ALL.len());
        for (name, answers) in FUNCTIONS {
            let function = Function::find(name).expect(name);
            let columns = function.result();
            let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
            let is_void = columns.iter().any(|(_, type_oid)| *type_oid == oid::VOID);
            match answers {
                Answers::Nothing => assert!(is_void, "{name}"),
                Answers::Value => assert!(!is_void && names == [name], "{name}"),
                Answers::Rows(known) => assert_eq!(names, known, "{name}"),
            }
        }
    }

    #[test]
    fn functions_are_found_by_name_and_print_their_declaration() {
        for function in Function::ALL {
            assert_eq!(Function::find(function.name()), Some(function));
        }
        assert_eq!(Function::find("nextval"), None);
        assert_eq!(
            Function::AddShard.to_string(),
            "shardgate.add_shard(name text, url text, region text DEFAULT NULL, capacity double precision DEFAULT 1, \
             replication_url text DEFAULT NULL)"
        );
        let variadic = |function: &Function| {
            let last = function.parameters().last().filter(|last| last.default == Default::Variadic)?;
            Some((function.name(), last.name))
        };
        assert_eq!(Function::ALL.iter().filter_map(variadic).collect::<Vec<_>>(), VARIADIC);
        assert_eq!(Function::Locate.to_string(), "shardgate.locate(table_name text, VARIADIC key text[])");
    }
}
