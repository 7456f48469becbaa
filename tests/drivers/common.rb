# What the programs for Ruby share; see common.py. They run on one plain PostgreSQL too, where the functions that distribute tables do
# nothing: what they print must be the same.
require "uri"

URL = ENV.fetch("DRIVERS_URL")
TENANTS = (1..30).to_a
$stdout.sync = true

def worked(what)
  puts what
end

# An answer that is compared with plain PostgreSQL's.
def told(name, what)
  puts "= #{name}: #{what.inspect}"
end

def same(found, expected)
  raise "#{found.inspect} is not #{expected.inspect}" if found != expected
end

def fails(kind)
  yield
rescue kind => error
  error
else
  raise "it did not fail with #{kind}"
end
