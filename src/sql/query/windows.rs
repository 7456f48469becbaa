//! Window functions over rows of reference tables: which of them give a row the same value wherever the rows are found.
//!
//! Ranks, and aggregates over rows that are told by their values (RANGE, GROUPS, the whole partition), hang on which rows there are
//! and on nothing else. `row_number`, `lag`, `first_value`, running sums by ROWS and their kind count rows one by one: they do where
//! PARTITION BY and ORDER BY leave no two rows alike.

use pg_raw_parse::{Node, nodes};

use super::Grouping;
use super::bind::Reader;
use super::found_first::{Known, Level};
use crate::sql::parse::tree;

/// OVER, with what it takes from the WINDOW clause.
struct Window<'n> {
    partition: Vec<Node<'n>>,
    order: Vec<&'n nodes::SortBy>,
    frame: i32,
}

impl Reader<'_> {
    /// Some window function of the level gives other values where other rows are found first.
    pub fn has_unordered_window(&self, level: &Level<'_, '_>, known: &Known) -> bool {
        let (mut seen, mut found) = (0, false);
        let targets = level.select.target_list().iter().map(nodes::ResTarget::val);
        let sorts = level.select.sort_clause().iter().map(nodes::SortBy::node);
        for node in targets.chain(sorts) {
            tree::walk(node, &mut |node| {
                if let Node::FuncCall(call) = node
                    && let Some(over) = call.over()
                {
                    seen += 1;
                    found |= self.window_hangs_on_order(call, over, level, known);
                }
                !found
            });
        }
        // Others are aggregates that have a grammar of their own: of JSON.
        found || seen < level.block.windows.len()
    }

    fn window_hangs_on_order(&self, call: &nodes::FuncCall, over: &nodes::WindowDef, level: &Level<'_, '_>, known: &Known) -> bool {
        let Some(window) = window(over, level.select) else { return true };
        let is_whole = window.frame & FRAME_OF_ROWS == 0 || window.frame & FRAME_OF_ALL == FRAME_OF_ALL;
        match self.catalog_function(call, level.frame) {
            Some("rank" | "dense_rank" | "percent_rank" | "cume_dist") => false,
            Some(_) if is_whole && self.is_orderless(call, level.frame) => false,
            Some(_) | None => !self.tells_rows_apart(&window, level, known),
        }
    }

    fn tells_rows_apart(&self, window: &Window<'_>, level: &Level<'_, '_>, known: &Known) -> bool {
        // By another operator than the type's own other values may be equal.
        let is_usual = |sort: &&&nodes::SortBy| sort.sortby_dir != nodes::SortByDir::SORTBY_USING;
        let sorted = window.order.iter().filter(is_usual).map(|sort| sort.node());
        let columns = window.partition.iter().copied().chain(sorted).filter_map(|node| self.own_column(node, level));
        let columns = self.determined(level, known, columns);
        !matches!(level.block.grouping, Grouping::Sets) && self.has_unique_key(level, &columns)
    }
}

/// `None`: it names a window that is not there.
fn window<'n>(over: &'n nodes::WindowDef, select: &'n nodes::SelectStmt) -> Option<Window<'n>> {
    let named = |name: &str| {
        select.window_clause().iter().find_map(|node| match node {
            Node::WindowDef(window) if window.name() == Some(name) => Some(window),
            _ => None,
        })
    };
    // OVER w is that window as it is, OVER (w …) begins with its partitions and its order.
    let mut part = over.name().map_or(Some(over), named)?;
    let mut window = Window { partition: Vec::new(), order: Vec::new(), frame: part.frame_options };
    for _ in 0..=select.window_clause().len() {
        window.partition.extend(part.partition_clause().iter());
        window.order.extend(part.order_clause().iter());
        match part.refname() {
            Some(base) => part = named(base)?,
            None => return Some(window),
        }
    }
    None
}

/// Of PostgreSQL's `frameOptions`: ROWS.
const FRAME_OF_ROWS: i32 = 0x4;
/// BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING.
const FRAME_OF_ALL: i32 = 0x20 | 0x100;
