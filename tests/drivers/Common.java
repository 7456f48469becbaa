import java.net.URI;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Types;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/**
 * What the programs for Java share; see common.py. They run on one plain PostgreSQL too, where the functions that distribute tables do
 * nothing: what they print must be the same.
 */
final class Common {
    static final URI PLACE = URI.create(System.getenv("DRIVERS_URL"));
    static final List<Integer> TENANTS = IntStream.rangeClosed(1, 30).boxed().collect(Collectors.toList());
    static final int SUM = 465;

    interface Work {
        void run() throws Exception;
    }

    private Common() {}

    static void worked(String what) {
        System.out.println(what);
    }

    /** An answer that is compared with plain PostgreSQL's. */
    static void told(String name, Object what) {
        System.out.println("= " + name + ": " + String.valueOf(what).replace("\n", "\\n"));
    }

    static void same(Object found, Object expected) {
        if (found instanceof List && expected instanceof List && ((List<?>) found).size() == ((List<?>) expected).size()) {
            for (int at = 0; at < ((List<?>) found).size(); at++) {
                if (!((List<?>) found).get(at).equals(((List<?>) expected).get(at))) {
                    throw new AssertionError(((List<?>) found).get(at) + " is not " + ((List<?>) expected).get(at));
                }
            }
        } else if (!Objects.deepEquals(found, expected)) {
            throw new AssertionError(found + " is not " + expected);
        }
    }

    /** It fails, with this SQLSTATE. */
    static SQLException fails(String state, Work work) throws Exception {
        try {
            work.run();
        } catch (SQLException error) {
            same(error.getSQLState() + " " + (state.equals(error.getSQLState()) ? "" : error.getMessage()), state + " ");
            return error;
        }
        throw new AssertionError("it did not fail with " + state);
    }

    /** With further settings of the driver's URL. */
    static Connection connect(String... settings) throws SQLException {
        String[] login = PLACE.getUserInfo().split(":");
        String url = "jdbc:postgresql://" + PLACE.getHost() + ":" + PLACE.getPort() + PLACE.getPath() + "?" + PLACE.getQuery();
        for (String setting : settings) {
            url += "&" + setting;
        }
        return DriverManager.getConnection(url, login[0], login[1]);
    }

    static void run(Connection connection, String... statements) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            for (String text : statements) {
                statement.execute(text);
            }
        }
    }

    /** The rows of a statement, each as text. */
    static List<String> rows(Connection connection, String text) throws SQLException {
        try (Statement statement = connection.createStatement(); ResultSet found = statement.executeQuery(text)) {
            return rows(found);
        }
    }

    static List<String> rows(ResultSet found) throws SQLException {
        List<String> rows = new ArrayList<>();
        ResultSetMetaData columns = found.getMetaData();
        while (found.next()) {
            List<String> row = new ArrayList<>();
            for (int column = 1; column <= columns.getColumnCount(); column++) {
                boolean bytes = columns.getColumnType(column) == Types.BINARY && found.getBytes(column) != null;
                row.add(bytes ? Arrays.toString(found.getBytes(column)) : found.getString(column));
            }
            rows.add(String.join("|", row.stream().map(String::valueOf).collect(Collectors.toList())));
        }
        return rows;
    }

    static String one(Connection connection, String text) throws SQLException {
        List<String> found = rows(connection, text);
        same(found.size(), 1);
        return found.get(0);
    }
}
