# ruby-pg, which ActiveRecord and Sequel use: libpq's calls of both protocols, pipelines, rows one by one, COPY, large objects, notifications.
require "pg"
require_relative "common"

db = PG.connect(URL)
same([db.status, db.ssl_in_use?], [PG::CONNECTION_OK, URL.include?("sslmode=require")])
db.exec("CREATE TABLE by_ruby (tenant int NOT NULL, n int NOT NULL, name text, amount numeric(10,2), at timestamptz, doc jsonb, tags text[], raw bytea, " \
        "PRIMARY KEY (tenant, n)); CREATE TABLE home_ruby (picture oid)")
db.exec("SELECT shardgate.distribute_table('by_ruby', 'tenant')")
told("settings", %w[server_version_num client_encoding TimeZone].map { |name| db.parameter_status(name).class })
worked("connect")

row = ["naïve 'x'", "12.50", "2024-02-29 12:30:00+00", "{\"a\": [1, null]}", "{x,\"y\\\"\"}", "\x00'\xff\\".b]
bytes = { value: row[5], format: 1 }
db.exec("SET TimeZone = 'UTC'")
[1, 2].each do |n|
  db.exec_params("INSERT INTO by_ruby VALUES ($1, $2, $3, $4, $5, $6, $7, $8)", [7, n, *row.first(5), bytes])
end
columns = "name, amount, at, doc, tags, raw"
found = db.exec_params("SELECT #{columns} FROM by_ruby ORDER BY tenant, n LIMIT 1")
same(found.values.map { |values| values.first(5) + [db.unescape_bytea(values[5])] }, [row])
found = db.exec_params("SELECT tenant, n, name, raw FROM by_ruby ORDER BY tenant, n", [], 1)
same(found.values.map { |values| values.first(2).map { |value| value.unpack1("N") } + values.last(2) }, [1, 2].map { |n| [7, n, row[0].b, row[5]] })
db.type_map_for_results = PG::BasicTypeMapForResults.new(db)
db.type_map_for_queries = PG::BasicTypeMapForQueries.new(db)
told("mapped", db.exec_params("SELECT #{columns}, n > $1 AS more FROM by_ruby WHERE tenant = $2 ORDER BY n", [1, 7]).values)
told("fields", found.fields.each_index.map { |at| [found.fname(at), found.ftype(at), found.fformat(at), found.fmod(at), found.ftablecol(at)] })
worked("types in text and binary")

db.prepare("put", "INSERT INTO by_ruby (tenant, n, amount) VALUES ($1, 10, $2)")
db.prepare("get", "SELECT amount FROM by_ruby WHERE tenant = $1 AND n = 10")
told("described", [db.describe_prepared("get").nparams, db.describe_prepared("get").fields, db.describe_prepared("put").paramtype(1)])
TENANTS.each { |tenant| same(db.exec_prepared("put", [tenant, tenant]).cmd_tuples, 1) }
same(TENANTS.map { |tenant| db.exec_prepared("get", [tenant]).getvalue(0, 0).to_i }, TENANTS)
worked("prepared statements")

db.enter_pipeline_mode
TENANTS.each { |tenant| db.send_query_params("UPDATE by_ruby SET amount = amount + $1 WHERE tenant = $2 AND n = 10", [1, tenant]) }
db.send_query_params("SELECT sum(amount) FROM by_ruby WHERE n = $1", [10])
db.pipeline_sync
same(TENANTS.map { db.get_result.cmd_tuples.tap { db.get_result } }, [1] * 30)
told("in a pipeline", db.get_result.values)
db.get_result
same(db.get_result.result_status, PG::PGRES_PIPELINE_SYNC)
# What comes after an error is skipped, and what came before it is undone.
["DELETE FROM by_ruby WHERE n = 10", "SELECT 1/0", "SELECT 1"].each { |text| db.send_query_params(text, []) }
db.pipeline_sync
told("skipped", 3.times.map { db.get_result.result_status.tap { db.get_result } })
same(db.get_result.result_status, PG::PGRES_PIPELINE_SYNC)
db.exit_pipeline_mode
told("kept", db.exec("SELECT count(*), sum(amount) FROM by_ruby WHERE n = 10").values)
worked("pipelines")

db.send_query("SELECT tenant FROM by_ruby WHERE n = 10 ORDER BY tenant")
db.set_single_row_mode
same(db.get_result.stream_each_row.map { |values| values[0] }, TENANTS)
db.get_result
db.exec("BEGIN")
db.exec("DECLARE c SCROLL CURSOR FOR SELECT tenant FROM by_ruby WHERE n = 10 ORDER BY tenant")
told("cursor", ["FETCH 3 FROM c", "FETCH BACKWARD 1 FROM c", "FETCH LAST FROM c", "FETCH ABSOLUTE -2 FROM c"].map { |text| db.exec(text).values.flatten })
db.exec("COMMIT")
worked("rows one by one, cursors")

db.copy_data("COPY by_ruby (tenant, n, name) FROM STDIN", PG::TextEncoder::CopyRow.new) { TENANTS.each { |tenant| db.put_copy_data([tenant, 20, "copied\t#{tenant}"]) } }
lines = []
db.copy_data("COPY (SELECT tenant, name FROM by_ruby WHERE n = 20 ORDER BY 1) TO STDOUT", PG::TextDecoder::CopyRow.new) { while (line = db.get_copy_data) do lines << line end }
same(lines, TENANTS.map { |tenant| [tenant.to_s, "copied\t#{tenant}"] })
fails(StandardError) { db.copy_data("COPY by_ruby (tenant, n) FROM STDIN") { db.put_copy_data("1\t30\n"); raise "given up" } }
same(db.exec("SELECT count(*) FROM by_ruby WHERE n = 30").getvalue(0, 0), 0)
worked("COPY")

error = fails(PG::UniqueViolation) do
  db.transaction do
    db.exec("UPDATE by_ruby SET name = 'gone'")
    db.exec("INSERT INTO by_ruby (tenant, n) VALUES (7, 10)")
  end
end
told("error", [PG::PG_DIAG_SQLSTATE, PG::PG_DIAG_MESSAGE_PRIMARY, PG::PG_DIAG_MESSAGE_DETAIL, PG::PG_DIAG_CONSTRAINT_NAME, PG::PG_DIAG_TABLE_NAME].map { |field| error.result.error_field(field) })
same(db.exec("SELECT count(*) FROM by_ruby WHERE name = 'gone'").getvalue(0, 0), 0)
told("error", fails(PG::SyntaxError) { db.exec("SELECT 1 FROM by_ruby WHERE") }.message.lines.first)
notices = []
db.set_notice_processor { |text| notices << text }
db.exec("DROP TABLE IF EXISTS ruby_never")
told("notices", notices)
worked("transactions, errors")

db.transaction do
  number = db.lo_creat(PG::INV_READ | PG::INV_WRITE)
  db.exec_params("INSERT INTO home_ruby VALUES ($1)", [number])
  object = db.lo_open(number, PG::INV_READ | PG::INV_WRITE)
  same(db.lo_write(object, "\x00abc\xff".b * 1000), 5000)
  db.exec("UPDATE by_ruby SET amount = 0 WHERE n = 20")
  same([db.lo_lseek(object, -5, PG::SEEK_END), db.lo_tell(object), db.lo_read(object, 100)], [4995, 4995, "\x00abc\xff".b])
  db.lo_truncate(object, 3)
  db.lo_close(object)
end
number = db.exec("SELECT picture FROM home_ruby").getvalue(0, 0)
told("large object", db.transaction { db.lo_read(db.lo_open(number, PG::INV_READ), 100) })
db.lo_unlink(number)
fails(PG::Error) { db.transaction { db.lo_open(number, PG::INV_READ) } }
worked("large objects")

other = PG.connect(URL)
other.exec("LISTEN ruby_news")
db.exec("NOTIFY ruby_news, 'one'")
heard = []
same(other.wait_for_notify(30) { |channel, _, payload| heard << [channel, payload] }, "ruby_news")
same(heard, [["ruby_news", "one"]])
other.close
worked("LISTEN and NOTIFY")

db.send_query("SELECT pg_sleep(30) FROM by_ruby WHERE tenant = 7 AND n = 1")
db.flush
# What comes too early cancels nothing.
until IO.select([db.socket_io], nil, nil, 0.1)
  same(db.cancel, nil)
end
told("cancelled", fails(PG::QueryCanceled) { db.get_last_result }.class)
told("ended", fails(PG::Error) { db.exec("SELECT pg_terminate_backend(pg_backend_pid())") }.class.ancestors.include?(PG::Error))
db.reset
same(db.exec("SELECT count(DISTINCT tenant) FROM by_ruby").getvalue(0, 0).to_i, 30)
worked("cancel, reconnect")
