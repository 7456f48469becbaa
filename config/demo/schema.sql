-- The tables of the book catalogue. Run it through the proxy once the shards are added: what makes or changes something goes
-- to every shard. Safe to run again.

CREATE TABLE IF NOT EXISTS languages (
    code text PRIMARY KEY,
    name text NOT NULL
);

CREATE TABLE IF NOT EXISTS books (
    isbn text PRIMARY KEY,
    title text NOT NULL,
    author text NOT NULL,
    year integer NOT NULL,
    language text NOT NULL,
    pages integer NOT NULL CHECK (pages > 0),
    price numeric(8,2) NOT NULL CHECK (price >= 0)
);

CREATE TABLE IF NOT EXISTS library_of_congress_catalog (
    isbn text PRIMARY KEY,
    lccn text NOT NULL,
    class text NOT NULL,
    subject text NOT NULL
);

CREATE TABLE IF NOT EXISTS orders (
    ordered_on date NOT NULL,
    id bigint NOT NULL,
    reader_id bigint NOT NULL,
    isbn text NOT NULL,
    quantity integer NOT NULL CHECK (quantity > 0),
    amount numeric(10,2) NOT NULL,
    PRIMARY KEY (ordered_on, id)
);

CREATE TABLE IF NOT EXISTS readers (
    id bigint PRIMARY KEY,
    name text NOT NULL,
    joined_on date NOT NULL
);

CREATE INDEX IF NOT EXISTS books_author_idx ON books (author);
CREATE INDEX IF NOT EXISTS orders_isbn_idx ON orders (isbn);
