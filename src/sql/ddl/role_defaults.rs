//! ALTER ROLE ... SET: whose logins get another value of which setting.

use pg_raw_parse::Node;

use crate::sql::parse;

/// A setting that logins as this role, or as everybody, are given.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RoleDefault {
    /// `None`: of every role.
    pub role: Option<String>,
    /// In lower case.
    pub name: String,
}

/// Of the first statement of a text. `None`: it stores no default. Where the role is the user that runs it, every role is said to be
/// meant.
pub fn role_default(text: &str) -> Option<RoleDefault> {
    let tree = parse::parse(text).ok()?;
    let Node::AlterRoleSetStmt(alter) = tree.stmts().next()? else { return None };
    let name = alter.setstmt()?.name()?.to_ascii_lowercase();
    let role = alter.role().and_then(|role| role.rolename()).map(str::to_owned);
    Some(RoleDefault { role, name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_role_and_the_setting_are_found() {
        for (text, role, name) in [
            ("ALTER ROLE ada SET Work_Mem = '1MB'", Some("ada"), "work_mem"),
            ("ALTER USER \"Ada\" IN DATABASE app SET app.tenant TO 5", Some("Ada"), "app.tenant"),
            ("ALTER ROLE ALL SET search_path FROM CURRENT", None, "search_path"),
            ("ALTER ROLE CURRENT_USER SET TIME ZONE 'UTC'", None, "timezone"),
            ("ALTER ROLE ada RESET work_mem", Some("ada"), "work_mem"),
        ] {
            assert_eq!(role_default(text), Some(RoleDefault { role: role.map(str::to_owned), name: name.to_owned() }), "{text}");
        }
        for text in ["ALTER ROLE ada RESET ALL", "ALTER ROLE ada LOGIN", "SET work_mem = '1MB'", "x"] {
            assert_eq!(role_default(text), None, "{text}");
        }
    }
}
