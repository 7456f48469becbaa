//! Bodies as users write them, and what they touch.

use super::*;
use crate::catalog::{ChangedSettings, UnnamedLeft};

fn read(language: &str, body: &str) -> BodyReferences {
    SqlBodyReader.references(language, body)
}

fn names<'n>(list: impl IntoIterator<Item = &'n BodyName>) -> Vec<String> {
    list.into_iter()
        .map(|name| name.schema.as_ref().map_or_else(|| name.name.clone(), |schema| format!("{schema}.{}", name.name)))
        .collect()
}

/// Reads, writes and functions, each between commas.
fn summary(language: &str, body: &str) -> (String, String, String) {
    let found = read(language, body);
    assert_eq!(found.unknown, None, "{body}");
    (names(&found.reads).join(","), names(found.writes.keys()).join(","), names(&found.functions).join(","))
}

fn expect(language: &str, body: &str, reads: &str, writes: &str, functions: &str) {
    assert_eq!(summary(language, body), (reads.to_owned(), writes.to_owned(), functions.to_owned()), "{body}");
}

/// The grammar's walk knows queries alone.
#[test]
fn a_table_of_a_prepared_statement_is_not_read() {
    for body in ["create temp table a as execute p (f(1))", "create table a as execute p with no data"] {
        assert!(read("sql", body).unknown.is_some(), "{body}");
        assert!(read("plpgsql", &format!("begin {body}; end")).unknown.is_some(), "{body}");
    }
}

#[test]
fn sql_bodies() {
    expect("sql", "select count(*) from t", "t", "", "count");
    expect("sql", "select 1; insert into s.a select * from b where x in (select y from c); ", "b,c", "s.a", "");
    expect("sql", "with w as (delete from a returning *) select f(x) from w", "w", "a", "f");
    expect("sql", "update a set x = g(b.y) from b where a.id = b.id", "b", "a", "g");
    expect("sql", "merge into a using b on a.id = b.id when matched then delete", "b", "a", "");
    expect("sql", "truncate a, b", "", "a,b", "");
    expect("sql", "select nextval('s.seq'), setval('other'::regclass, 1)", "", "other,s.seq", "nextval,setval");
    expect(
        "sql",
        "BEGIN ATOMIC\n SELECT count(*) FROM public.t;\n INSERT INTO public.a VALUES (1);\nEND",
        "public.t",
        "public.a",
        "count",
    );
    expect("sql", "RETURN (SELECT max(x) FROM public.t)", "public.t", "", "max");
    expect("sql", "call p(1)", "", "", "p");
    expect("sql", "select x from t for update", "t", "", "");
}

#[test]
fn sql_bodies_that_cannot_be_known() {
    for body in ["select nextval(x)", "create table a(x int)", "selec 1", "lock", "vacuum a", "select lastval()"] {
        assert!(read("sql", body).unknown.is_some(), "{body}");
    }
    assert_eq!(read("plperl", "x").unknown.as_deref(), Some("is written in plperl"));
}

#[test]
fn plpgsql_statements() {
    expect(
        "plpgsql",
        "
        -- a comment with 'quotes
        <<outer>>
        DECLARE
            n int := (SELECT count(*) FROM d1);
            c CURSOR (k int) FOR SELECT * FROM d2 WHERE id = k;
            r record;
            total constant numeric(10, 2) default f0();
        BEGIN
            IF EXISTS (SELECT FROM i1) THEN
                INSERT INTO w1 VALUES (n) RETURNING id INTO n;
            ELSIF CASE WHEN n > 1 THEN f1(n) ELSE false END THEN
                UPDATE w2 SET x = 1 WHERE y = n;
            ELSE
                DELETE FROM w3;
            END IF;
            SELECT a, b INTO STRICT n, r.x FROM s1 WHERE z = n;
            PERFORM f2(x) FROM s2;
            FOR i IN REVERSE 1 .. f3() BY 2 LOOP
                n := n + f4(i);
            END LOOP outer;
            FOR r IN SELECT * FROM s3 LOOP
                CONTINUE WHEN r.x = f5();
            END LOOP;
            FOREACH n IN ARRAY f6() LOOP
                RAISE NOTICE 'hello % %', n, (SELECT 1 FROM s4) USING hint = f7(), errcode = 'P0001';
            END LOOP;
            WHILE n < 3 LOOP
                n = n + 1;
                EXIT outer;
            END LOOP;
            CASE n WHEN 1, 2 THEN NULL; WHEN f8() THEN n[f9()] := 1; ELSE NULL; END CASE;
            OPEN c(f10());
            FETCH c INTO r;
            CLOSE c;
            BEGIN
                GET DIAGNOSTICS n = ROW_COUNT;
            EXCEPTION WHEN unique_violation OR SQLSTATE '22012' THEN
                RAISE;
            END;
            ASSERT n > 0, 'n';
            CALL p1(n);
            RETURN QUERY SELECT * FROM s5;
            RETURN NEXT f11();
            RETURN;
        EXCEPTION
            WHEN OTHERS THEN
                INSERT INTO w4 SELECT * FROM s6;
                RETURN;
        END;",
        "d1,d2,i1,s1,s2,s3,s4,s5,s6",
        "w1,w2,w3,w4",
        "count,f0,f1,f10,f11,f2,f3,f4,f5,f6,f7,f8,f9,p1",
    );
}

#[test]
fn plpgsql_bodies_that_cannot_be_known() {
    for body in [
        "begin execute 'select 1'; end",
        "begin for r in execute 'select 1' loop null; end loop; end",
        "begin return query execute 'select 1'; end",
        "begin open c for execute 'select 1'; end",
        "begin commit; end",
        "begin create table t(x int); end",
        "begin frobnicate the table; end",
        "begin if x then",
        "begin select 1 from where; end",
    ] {
        assert!(read("plpgsql", body).unknown.is_some(), "{body}");
    }
}

#[test]
fn assignments_to_new_are_told() {
    let assigned = |body: &str| read("plpgsql", body).assigned_new;
    let some = |columns: &[&str]| Some(columns.iter().map(|column| (*column).to_owned()).collect::<Vec<_>>());
    assert_eq!(assigned("begin new.updated_at = now(); return new; end"), some(&["updated_at"]));
    assert_eq!(assigned("begin NEW.\"Key\" := 1; new.tags[1] := 'x'; return NEW; end"), some(&["Key", "tags"]));
    assert_eq!(assigned("begin select a, b into new.x, new.y from t; return null; end"), some(&["x", "y"]));
    assert_eq!(assigned("begin if old.a <> new.a then insert into h values (old.*); end if; return old; end"), some(&[]));
    assert_eq!(assigned("<<outside>> begin outside.new.x := 1; select 2 into outside.new.y; return new; end"), some(&["x", "y"]));
    assert_eq!(assigned("begin call p(old.x); return new; end"), some(&[]));
    for body in [
        "begin call p(new.x); return new; end",
        "begin f.new := old; return new; end",
        "begin new := f(new); return new; end",
        "begin select * into new from t; return new; end",
        "begin return r; end",
        "begin return f(new); end",
        "declare n alias for new; begin n.x := 1; return n; end",
        "begin for new in select * from t loop end loop; return new; end",
        "begin fetch c into new; return new; end",
        "begin get diagnostics new.x = row_count; return new; end",
    ] {
        assert_eq!(assigned(body), None, "{body}");
    }
}

#[test]
fn keywords_as_names_and_odd_spacing_do_not_confuse() {
    expect("plpgsql", "begin execute := 1; raise := f(); end", "", "", "f");
    expect("plpgsql", "begin if(select true from a)then null;end if;end", "a", "", "");
    expect("plpgsql", "begin return case when f() then 1 end; end", "", "", "f");
    expect("plpgsql", "#variable_conflict use_column\nbegin perform 1; end", "", "", "");
    expect("plpgsql", "begin x := $q$ ; execute 'a' $q$; end", "", "", "");
    expect("plpgsql", "declare declare a int; begin null; end", "", "", "");
}

#[test]
fn bodies_that_nest_deeply_end() {
    let deep = format!("select 1{}", "+1".repeat(100_000));
    expect("sql", &deep, "", "", "");
    assert!(read("sql", &"x".repeat(BODY_BYTES_MAX + 1)).unknown.is_some());
}

#[test]
fn what_outlives_the_transaction_is_known_by_its_name_or_not_understood() {
    let told = |language: &str, body: &str| {
        let found = SqlBodyReader.references(language, body);
        (found.sets_session, found.sets_local, found.unknown)
    };
    let named = (true, false, None);
    assert_eq!(told("sql", "SELECT set_config('work_mem', '1MB', false)"), named);
    assert_eq!(told("sql", "SELECT set_config('work_mem', '1MB', $1)"), named);
    assert_eq!(told("plpgsql", "BEGIN SET work_mem = '1MB'; RESET role; END"), named);
    assert_eq!(told("plpgsql", "BEGIN PERFORM set_config('work_mem', v, false); END"), named);
    for body in [
        "BEGIN SET search_path = a; END",
        "BEGIN PERFORM set_config('Search_Path', 'a', false); END",
        "BEGIN PERFORM set_config(n, 'a', false); END",
        "BEGIN RESET ALL; END",
        "BEGIN SET seed = 0.5; END",
    ] {
        assert_eq!(told("plpgsql", body).2.as_deref(), Some("changes a setting of the session"), "{body}");
    }
    let local = (false, true, None);
    assert_eq!(told("plpgsql", "BEGIN SET LOCAL work_mem = '1MB'; PERFORM set_config('a.b', 'c', true); END"), local);
    assert!(told("sql", "SELECT pg_advisory_lock(1)").2.is_some());
    assert_eq!(told("sql", "SELECT pg_advisory_xact_lock(1)"), (false, false, None));
}

#[test]
fn what_sends_notifications_is_seen() {
    for (language, body) in [
        ("sql", "NOTIFY news, 'x'"),
        ("sql", "select pg_notify('news', 'x')"),
        ("plpgsql", "begin notify news; return null; end"),
        ("plpgsql", "begin if new.a then perform pg_catalog.pg_notify('news', new.a::text); end if; return null; end"),
    ] {
        assert!(read(language, body).notifies, "{body}");
    }
    assert!(!read("plpgsql", "begin insert into news values ('notify'); return null; end").notifies);
}

#[test]
fn operators_are_found_where_they_are_not_written() {
    let operators = |body: &str| read("sql", body).operators.join(" ");
    assert_eq!(operators("select case x when 1 then 2 end from t"), "=");
    assert_eq!(operators("select case when b then 2 end from t"), "");
    assert_eq!(operators("select x in (select y from t) from u"), "=");
    assert_eq!(operators("select x === any (select y from t) from u"), "===");
    assert_eq!(operators("select exists (select from t), array(select 1)"), "");
    assert_eq!(operators("select from t join u using (k)"), "=");
    assert_eq!(operators("select x between 1 and 2"), "< <= > >=");
}

#[test]
fn what_stands_after_a_dot_may_be_a_function() {
    let fields = |body: &str| read("sql", body).fields.join(" ");
    assert_eq!(fields("select u.total, v from t u where (u).more > 1"), "more total");
    assert_eq!(fields("select total, u.* from u"), "");
}

#[test]
fn what_a_body_leaves_in_its_session_is_told() {
    let effects = |language: &str, body: &str| read(language, body).effects;
    let nothing = SessionEffects::default();
    for body in [
        "begin set local work_mem = 1; perform set_config('a.b', 'c', true); update t set x = 1; return; end",
        "begin if x then commit; end if; perform f(); end",
        "begin set transaction read only; set standard_conforming_strings = on; end",
        "begin execute 'select 1'; end",
    ] {
        let found = effects("plpgsql", body).without_transaction();
        assert_eq!(SessionEffects { names_left: nothing.names_left.clone(), ..found.clone() }, nothing, "{body}");
        assert_eq!(found.names_left.contains("a.b"), body.contains("a.b"), "{body}");
    }
    let mut sets = SessionEffects::default();
    sets.sets_for_transaction(Some("a.b"));
    assert_eq!(effects("plpgsql", "begin perform set_config('A.b', c, true); end"), sets);
    sets.sets_unnamed_for_transaction(true);
    assert_eq!(effects("plpgsql", "begin set local a.b = 1; perform set_config(n, c, true); end"), sets);
    let mut sets = SessionEffects::default();
    ["app.tenant", "search_path", "role", "work_mem", "timezone"].iter().for_each(|name| sets.sets(name));
    let body = "begin perform set_config('App.Tenant', t::text, false); set search_path = a; if b then commit; reset role; end if; \
                execute 'set work_mem = 1'; set time zone 'UTC'; end";
    assert_eq!(effects("plpgsql", body), sets);
    for body in
        ["begin perform set_config(n, v, false); end", "begin reset all; end", "begin update pg_settings set setting = 1; end"]
    {
        assert_eq!(effects("plpgsql", body).settings, ChangedSettings::Any, "{body}");
    }
    for body in
        ["begin execute t; end", "begin for r in execute t loop perform set_config('a.b', c, false); end loop; end", "begin ("]
    {
        assert!(effects("plpgsql", body).is_unproven, "{body}");
    }
    for (language, body, kept) in [
        ("plpgsql", "begin create temp table x (); end", Kept::TemporaryObject),
        ("sql", "create temp table x as select 1", Kept::TemporaryObject),
        ("sql", "select 1 into temp x", Kept::TemporaryObject),
        ("plpgsql", "begin execute 'listen x'; end", Kept::Listen),
        ("sql", "prepare x as select 1", Kept::PreparedStatement),
        ("plpgsql", "begin set seed = 0.5; end", Kept::Seed),
    ] {
        assert!(effects(language, body).kept.contains(&kept), "{body}");
    }
    assert!(effects("plpgsql", "begin create temp table x () on commit drop; end").kept.is_empty());
    let made = effects("plpgsql", "begin perform set_config('app.' || n, c, true); end");
    assert_eq!(made.unnamed_left, UnnamedLeft::Made);
    for body in ["create function f() returns int set app.X = 1 return 1", "alter role r set app.x = 1"] {
        assert!(effects("sql", body).names_left.contains("app.x"), "{body}");
    }
}

/// A write is what it is: MERGE and ON CONFLICT are the union of what they may do.
#[test]
fn what_is_done_with_rows_is_told_apart() {
    let update = |columns: &[&str]| RowWrites::update(columns.iter().map(|column| (*column).to_owned()).collect());
    let with = |mut writes: RowWrites, others: &[RowWrites]| {
        others.iter().for_each(|other| writes.add(other));
        writes
    };
    for (body, expected) in [
        ("INSERT INTO t VALUES (1)", RowWrites::INSERT),
        ("INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING", RowWrites::INSERT),
        (
            "INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET b = 2, \"C\"[1] = 3",
            with(RowWrites::INSERT, &[update(&["b", "C"])]),
        ),
        ("UPDATE t AS x SET a = 1, (b, c.d) = (2, 3) FROM u", update(&["a", "b", "c"])),
        ("WITH gone AS (DELETE FROM t RETURNING *) SELECT count(*) FROM gone", RowWrites::DELETE),
        ("DELETE FROM t; UPDATE t SET a = 1", with(RowWrites::DELETE, &[update(&["a"])])),
        ("TRUNCATE t", RowWrites::TRUNCATE),
        (
            "MERGE INTO t USING u ON t.a = u.a WHEN MATCHED THEN UPDATE SET b = 1 WHEN NOT MATCHED THEN INSERT VALUES (1)",
            with(RowWrites::INSERT, &[update(&["b"])]),
        ),
        ("MERGE INTO t USING u ON t.a = u.a WHEN MATCHED AND u.b THEN DELETE WHEN MATCHED THEN DO NOTHING", RowWrites::DELETE),
        ("LOCK t", RowWrites::ALL),
    ] {
        let found = read("sql", body);
        let of_t = found.writes.iter().find(|(name, _)| name.name == "t").map(|(_, writes)| writes.clone());
        assert_eq!(of_t, Some(expected), "{body}");
    }
}
