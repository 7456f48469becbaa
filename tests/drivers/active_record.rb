# ActiveRecord over ruby-pg: its migrations, each in its own transaction with an advisory lock, models, and what it asks the catalogue.
require "logger"
require "active_record"
require_relative "common"

ActiveRecord::Base.establish_connection(URL + "&application_name=active_record")
ActiveRecord::Base.logger = Logger.new($stderr) if ENV["DRIVERS_LOG"]
ActiveRecord::Migration.verbose = false
def db
  ActiveRecord::Base.connection
end
same(db.active?, true)
told("version", db.select_value("SHOW application_name"))
worked("connect")

class CreateShop < ActiveRecord::Migration[6.1]
  def change
    create_table :tenants do |table|
      table.string :name, null: false, limit: 40
      table.timestamps
    end
    create_table :orders, primary_key: [:tenant_id, :n] do |table|
      table.bigint :tenant_id, null: false
      table.integer :n, null: false
      table.string :title
      table.decimal :amount, precision: 10, scale: 2, default: "0.5"
      table.jsonb :doc, default: {}
      table.text :tags, array: true, default: []
      table.datetime :at, precision: 6
      table.uuid :code
      table.binary :raw
      table.inet :ip
      table.daterange :days
      table.boolean :done, default: false, null: false
    end
    # This version of ActiveRecord takes no notice of primary keys of several columns.
    add_index :orders, [:tenant_id, :n], unique: true, name: "orders_key"
    add_foreign_key :orders, :tenants
    add_index :orders, [:tenant_id, :title]
    create_table :languages, id: :string do |table|
      table.string :name, comment: "as its speakers say it"
    end
  end
end

# Everything in one transaction, over tables that hold rows on all shards.
class ChangeOrders < ActiveRecord::Migration[6.1]
  class Order < ActiveRecord::Base
    self.table_name = "orders"
  end

  def up
    add_column :orders, :state, :string, limit: 20, default: "new", null: false
    add_column :orders, :total, :decimal, precision: 12, scale: 2
    Order.reset_column_information
    raise "no defaults" unless Order.where(state: "new").count == 60
    Order.where(n: 1).update_all("state = 'old', total = amount * 2")
    Order.where(total: nil).update_all(total: 0)
    change_column_null :orders, :total, false, 1
    change_column_default :orders, :state, from: "new", to: "fresh"
    change_column :orders, :title, :text
    add_check_constraint :orders, "total >= 0", name: "total_is_positive"
    add_index :orders, [:tenant_id, :state], name: "orders_by_state", where: "state <> 'old'"
    add_index :orders, "tenant_id, lower(title)", name: "orders_by_title", using: :btree
    rename_column :orders, :done, :closed
    rename_column :tenants, :name, :called
    rename_index :orders, "orders_by_state", "orders_of_state"
    change_column_comment :orders, :total, from: nil, to: "in euros"
    change_table_comment :orders, from: nil, to: "what tenants have ordered"
    execute "CREATE VIEW open_orders AS SELECT tenant_id, n, title FROM orders WHERE NOT closed"
    change_table :orders, bulk: true do |table|
      table.string :first
      table.integer :second, default: 7
      table.rename :code, :uuid
    end
    remove_column :orders, :first
    # What moves data reads all shards and writes them.
    Order.where(n: 2).order(:tenant_id).each { |order| Order.where(tenant_id: order.tenant_id, n: 2).update_all(second: order.tenant_id) }
    execute "INSERT INTO languages SELECT 'l' || tenant_id, max(title) FROM orders GROUP BY tenant_id"
    create_join_table :tenants, :languages, column_options: { type: :string }
    drop_join_table :tenants, :languages
    enable_extension "pgcrypto"
  end

  def down
    execute "DROP VIEW open_orders"
    rename_column :tenants, :called, :name
    remove_check_constraint :orders, name: "total_is_positive"
    remove_index :orders, name: "orders_by_title"
    remove_columns :orders, :state, :total, :second
    rename_column :orders, :closed, :done
    rename_column :orders, :uuid, :code
  end
end

class IndexConcurrently < ActiveRecord::Migration[6.1]
  disable_ddl_transaction!

  def change
    add_index :orders, [:tenant_id, :amount], name: "orders_by_amount", algorithm: :concurrently
    add_index :orders, :at, name: "orders_by_time", algorithm: :concurrently, if_not_exists: true, order: { at: :desc }
  end
end

class Validated < ActiveRecord::Migration[6.1]
  def change
    add_check_constraint :orders, "n > 0", name: "n_is_positive", validate: false
    validate_check_constraint :orders, name: "n_is_positive" if respond_to?(:validate_check_constraint)
    reversible { |way| way.up { execute "ALTER TABLE orders VALIDATE CONSTRAINT n_is_positive" } }
  end
end

class Fails < ActiveRecord::Migration[6.1]
  def change
    add_column :orders, :never, :integer
    execute "UPDATE orders SET never = n / (n - 1)"
  end
end

# As `rails db:migrate` runs them, without files.
def migrate(direction, steps, target = nil)
  migrations = steps.each_with_index.map do |step, index|
    step.new(step.name, index + 1)
  end
  schema = ActiveRecord::SchemaMigration
  schema = db.schema_migration if db.respond_to?(:schema_migration)
  ActiveRecord::Migrator.new(direction, migrations, schema, target).migrate
end

STEPS = [CreateShop, ChangeOrders, IndexConcurrently, Validated, Fails]
migrate(:up, STEPS, 1)
db.execute(%q(SELECT shardgate.distribute_tables('{"tenants": "id", "orders": "tenant_id"}')))
db.execute("SELECT shardgate.reference_table('languages')")

# Beside those of other programs.
def own_tables
  (db.tables & %w[tenants orders languages languages_tenants schema_migrations ar_internal_metadata]).sort
end

def structure
  %w[tenants orders languages].each do |table|
    db.columns(table).each do |column|
      # The default of identity and serial columns of sharded tables is another one.
      default = column.default_function.to_s.match?(/nextval|shardgate/) ? "a number" : column.default_function
      told(table, [column.name, column.sql_type, column.null, column.default, default, column.comment])
    end
    told("indexes", db.indexes(table).map { |index| [index.name, index.columns, index.unique, index.where, index.orders, index.using, index.valid?] rescue [index.name, index.columns, index.unique, index.where, index.orders, index.using] })
    told("foreign keys", db.foreign_keys(table).map { |key| [key.name, key.from_table, key.to_table, key.column, key.primary_key, key.validated?] })
    told("constraints", db.check_constraints(table).map { |check| [check.name, check.expression] }.sort)
    told("primary key", [db.primary_key(table), db.primary_keys(table), db.table_comment(table)])
  end
  told("tables", [own_tables, db.views & ["open_orders"], db.table_exists?(:orders), db.index_exists?(:orders, [:tenant_id, :title]), db.current_schema])
end
structure
worked("structure")

class Tenant < ActiveRecord::Base
  has_many :orders
end
class Order < ActiveRecord::Base
  belongs_to :tenant
end
class Language < ActiveRecord::Base
end
tenants = TENANTS.map { |t| Tenant.create!(name: "t#{t}") }
same(tenants.map(&:id).uniq.size, TENANTS.size)
rows = tenants.flat_map { |tenant| [1, 2].map { |n| { tenant_id: tenant.id, n: n, title: "#{tenant.name}.#{n}", amount: tenant.id % 7 } } }
Order.insert_all(rows, unique_by: [:tenant_id, :n])
migrate(:up, STEPS, 2)
migrate(:up, STEPS, 4)
[Tenant, Order, Language].each(&:reset_column_information)
structure
told("migrations", db.select_values("SELECT version FROM schema_migrations ORDER BY length(version), version"))
told("environment", db.select_rows("SELECT count(*) FROM orders GROUP BY state ORDER BY state"))
error = fails(StandardError) { migrate(:up, STEPS, 5) }
told("a migration that fails", error.cause.class)
same(db.column_exists?(:orders, :never), false)
told("migrations", db.select_values("SELECT version FROM schema_migrations ORDER BY length(version), version"))
# Another process has the lock.
other = PG.connect(URL)
number = ActiveRecord::Migrator.new(:up, [], ActiveRecord::SchemaMigration).send(:generate_migrator_advisory_lock_id)
other.exec("SELECT pg_advisory_lock(#{number % 2**63})")
fails(ActiveRecord::ConcurrentMigrationError) { migrate(:up, STEPS, 5) }
other.close
worked("migrations")

first = Tenant.order(:id).first.id
same(Tenant.find_each(batch_size: 7).map(&:called).sort, TENANTS.map { |t| "t#{t}" }.sort)
same(Tenant.in_batches(of: 11).map(&:size), [11, 11, 8])
told("sums", [Order.sum(:amount), Order.average(:n), Order.maximum(:title), Order.group(:state).order(:state).count, Order.distinct.count(:amount)])
told("joined", Tenant.joins(:orders).where(orders: { state: "old" }).order(:id).limit(3).pluck("tenants.called", "orders.title"))
told("loaded", Tenant.includes(:orders).order(:id).first(4).map { |tenant| tenant.orders.map(&:title).sort })
told("eager", Tenant.eager_load(:orders).where("orders.n = 2").order("tenants.id DESC").limit(2).offset(1).map { |tenant| tenant.orders.size })
told("left", Tenant.left_outer_joins(:orders).where(orders: { n: nil }).count)
told("sub-query", Order.where(tenant_id: Tenant.where("called LIKE 't1%'")).order(:title).pluck(:title))
told("exists", [Order.exists?(title: "t7.1"), Order.where(title: "t7.1").or(Order.where(title: "t8.2")).count, Order.none.count])
told("having", Order.group(:tenant_id).having("count(*) > 1").count.size)
moment = Time.utc(2024, 2, 29, 12, 30, 0, 123456)
values = { title: "naïve 'x' \\", amount: BigDecimal("12.50"), doc: { "a" => [1, nil] }, tags: ["x", "y\"", "z,"], at: moment,
           uuid: "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", raw: "\x00\xff".b, ip: IPAddr.new("10.0.0.1"), days: Date.new(2024, 1, 1)...Date.new(2024, 2, 1) }
Order.where(tenant_id: first, n: 1).update_all(values.slice(:title, :amount, :at, :uuid))
Order.create!(values.merge(tenant_id: first, n: 3, total: 1))
found = Order.find_by!(tenant_id: first, n: 3)
values.each { |name, value| same(found.public_send(name), value) }
told("types", Order.where("doc @> ?", { a: [1] }.to_json).where("? = ANY (tags)", "x").where("days @> ?::date", "2024-01-15").pluck(:n, :raw, :ip))
worked("models")

told("inserted", Order.insert_all([{ tenant_id: first, n: 1, title: "again", total: 0 }, { tenant_id: first, n: 4, title: "new", total: 0 }], returning: %w[n title], unique_by: [:tenant_id, :n]).rows)
upserted = Order.upsert_all(TENANTS.map { |t| { tenant_id: first + t - 1, n: 2, title: "upserted #{t}", total: t } }, unique_by: [:tenant_id, :n], returning: "title")
told("upserted", upserted.rows.flatten.sort)
told("upserted", Order.where(n: 2).order(:tenant_id).pluck(:title, :total, :amount))
told("languages", Language.upsert_all([{ id: "l1", name: "one" }, { id: "l999", name: "two" }]).rows)
told("languages", Language.order(:id).limit(3).pluck(:id, :name))
same(Order.where(n: 4).delete_all, 1)
told("found or made", Tenant.find_or_create_by!(called: "t7").called)
worked("insert_all, upsert_all")

error = fails(RuntimeError) do
  Order.transaction do
    Order.update_all(title: "gone")
    fails(ActiveRecord::RecordNotUnique) do
      Order.transaction(requires_new: true) { Order.create!(tenant_id: first, n: 3, total: 1) }
    end
    Order.transaction(requires_new: true) do
      Order.where(n: 2).delete_all
      raise ActiveRecord::Rollback
    end
    same(Order.where(title: "gone").count, 61)
    raise "back"
  end
end
same([error.message, Order.where(title: "gone").count], ["back", 0])
Order.transaction { Order.where(n: 2).update_all("amount = amount + 1"); Tenant.where(id: [first, first + 1]).lock.order(:id).each { |tenant| tenant.update!(called: tenant.called + "!") } }
told("kept", [Order.where(n: 2).sum(:amount), Tenant.order(:id).limit(3).pluck(:called)])
Tenant.transaction(isolation: :read_committed) { same(Tenant.count, 30) }
{ "SELECT nothing FROM orders" => ActiveRecord::StatementInvalid, "INSERT INTO orders (tenant_id, n, total) VALUES (9999, 1, 1)" => ActiveRecord::InvalidForeignKey,
  "INSERT INTO orders (tenant_id, n) VALUES (#{first}, 9)" => ActiveRecord::NotNullViolation,
  "UPDATE orders SET title = repeat('x', 20), state = repeat('y', 21)" => ActiveRecord::ValueTooLong, "SELECT 10000000000::int" => ActiveRecord::RangeError,
}.each { |text, kind| told("error", fails(kind) { db.execute(text) }.cause.message.lines.first) }
worked("transactions, errors")

told("prepared", [db.prepared_statements, TENANTS.map { |t| Order.where(tenant_id: first + t - 1, n: 1).pick(:amount).to_s }])
told("prepared", db.exec_query("SELECT count(*) FROM orders WHERE n = $1", "count", [[nil, 1]], prepare: true).rows)
# The statement of a model that has learnt of a new column.
Tenant.find(first)
db.add_column :tenants, :extra, :string
same(Tenant.find(first).called, "t1!")
Tenant.reset_column_information
same(Tenant.find(first).extra, nil)
same(Order.where(tenant_id: first).explain.include?("EXPLAIN for:"), true)
worked("prepared statements, explain")

# Without prepared statements, as behind PgBouncer.
ActiveRecord::Base.establish_connection(URL + "&prepared_statements=false&advisory_locks=false&schema_search_path=public")
told("unprepared", [db.prepared_statements, Order.where(n: 2).sum(:amount), db.schema_search_path])
db.execute("SET statement_timeout = 300")
fails(ActiveRecord::QueryCanceled) { db.execute("SELECT pg_sleep(30) FROM orders WHERE tenant_id = #{first}") }
db.execute("RESET statement_timeout")
pid = db.select_value("SELECT pg_backend_pid()")
killer = PG.connect(URL)
killer.exec("SELECT pg_terminate_backend(#{pid})")
killer.close
fails(ActiveRecord::StatementInvalid) { loop { Order.count } }
db.reconnect!
same(Order.where(n: 2).count, 30)
db.reset!
same(db.active?, true)
worked("time-outs, reconnect")

# The numbers of a primary key.
told("sequence", [db.pk_and_sequence_for("tenants")&.first, db.serial_sequence("tenants", "id")])
Tenant.insert!({ id: 5000, called: "far", created_at: moment, updated_at: moment })
db.reset_pk_sequence!("tenants")
same(Tenant.create!(called: "behind").id > 5000, true)
migrate(:down, STEPS.first(4), 1)
told("migrations", db.select_values("SELECT version FROM schema_migrations"))
structure
Order.where(n: 1).delete_all
told("left", db.select_rows("SELECT n, count(*) FROM orders GROUP BY n ORDER BY n"))
db.truncate_tables("orders", "tenants")
same(db.select_value("SELECT count(*) FROM tenants"), 0)
migrate(:down, STEPS.first(4), 0)
told("tables", own_tables)
worked("rollback of migrations")
