#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace rowlock {
class error;
}

namespace rowlock::detail {
class row_sessions;  // src/transaction/rows/row_sessions.hpp
}

/// The port between rowlock's protocols, which know SQL and no database library, and the drivers,
/// which know a database library and no SQL.
namespace rowlock::sql {

/// @addtogroup connections
/// @{

/// Which SQL a connection understands. A dialect may be spoken by several drivers.
enum class dialect : unsigned char {
    postgresql,  ///< through libpq or SOCI
    mysql,       ///< MySQL and MariaDB
    sqlite,      ///< 3.35 or newer
};

/// The name of the enumerator.
[[nodiscard]] std::string_view to_string(dialect which) noexcept;
/// Writes to_string().
std::ostream& operator<<(std::ostream& out, dialect which);

/// The time by which a call must have returned. Waiting for a lock, the network and the server all
/// count.
using deadline = std::chrono::steady_clock::time_point;

/// A scoped enumeration of 64 bits: an integer with a type of its own, such as rowlock::session_id.
template <typename T>
concept typed_integer = std::is_enum_v<T> && !std::convertible_to<T, std::int64_t> &&
                        std::same_as<std::underlying_type_t<T>, std::int64_t>;

/// One parameter of a statement. Text is viewed, not copied: it must live through the call.
class value {
public:
    /// What a parameter is.
    enum class kind : unsigned char {
        null,     ///< NULL
        integer,  ///< integer()
        text,     ///< text()
    };

    constexpr value(std::nullptr_t = nullptr) noexcept {}  ///< NULL
    /// An integer of any size; above the range of std::int64_t it wraps round.
    template <std::integral Integer>
    requires(!std::same_as<Integer, bool> &&
             !std::same_as<Integer, char>) constexpr value(Integer number) noexcept
        : kind_{kind::integer}, integer_{static_cast<std::int64_t>(number)} {}
    /// An id of its own type, as its number.
    template <typed_integer Integer>
    constexpr value(Integer number) noexcept : value{static_cast<std::int64_t>(number)} {}
    /// UTF-8, viewed.
    constexpr value(std::string_view text) noexcept : kind_{kind::text}, text_{text} {}
    /// UTF-8, up to its end.
    constexpr value(const char* text) noexcept : value{std::string_view{text}} {}
    value(const std::string& text) noexcept : value{std::string_view{text}} {}  ///< UTF-8, viewed
    /// The value, or NULL if there is none.
    template <typename T>
    value(const std::optional<T>& maybe) noexcept {
        if (maybe) *this = value{*maybe};
    }

    [[nodiscard]] constexpr kind type() const noexcept { return kind_; }  ///< what it is
    /// Whether it is NULL.
    [[nodiscard]] constexpr bool is_null() const noexcept { return kind_ == kind::null; }
    /// 0 if it is none.
    [[nodiscard]] constexpr std::int64_t integer() const noexcept { return integer_; }
    /// Empty if it is none.
    [[nodiscard]] constexpr std::string_view text() const noexcept { return text_; }

private:
    kind kind_ = kind::null;
    std::int64_t integer_ = 0;
    std::string_view text_;
};

/// A statement that is prepared once per connection and kept. Parameters are written `$1` … `$n` in
/// every dialect and may repeat; a driver translates them (see src/driver/placeholders.hpp). Copies
/// share one identity, so they share the prepared handle.
class statement {
public:
    /// Parses and sends nothing.
    explicit statement(std::string text);

    [[nodiscard]] const std::string& text() const noexcept { return text_; }  ///< as it was given
    /// Unique in this process: the key of a driver's cache of prepared handles.
    [[nodiscard]] std::uint64_t id() const noexcept { return id_; }

private:
    std::string text_;
    std::uint64_t id_;
};

/// The result of a statement: a table of cells held as text, and the count of rows it changed.
class result {
public:
    /// No rows yet.
    explicit result(std::size_t columns = 0) noexcept : columns_{columns} {}

    [[nodiscard]] std::size_t columns() const noexcept { return columns_; }  ///< cells in each row
    /// How many rows were read.
    [[nodiscard]] std::size_t rows() const noexcept {
        return columns_ == 0 ? 0 : cells_.size() / columns_;
    }
    [[nodiscard]] bool empty() const noexcept { return rows() == 0; }  ///< no rows
    /// Rows inserted, updated or deleted. A MySQL UPDATE that matches a row and changes nothing may
    /// count it or not, by driver: statements therefore change every row they match.
    [[nodiscard]] std::int64_t affected() const noexcept { return affected_; }

    /// Whether the cell is NULL.
    [[nodiscard]] bool is_null(std::size_t row, std::size_t column) const;
    /// The number in the cell.
    /// @throws error errc::database_error if the cell is NULL or no integer.
    [[nodiscard]] std::int64_t integer(std::size_t row, std::size_t column) const;
    /// Empty for NULL. Valid as long as this result.
    [[nodiscard]] std::string_view text(std::size_t row, std::size_t column) const;
    /// nullopt for NULL. Otherwise as integer().
    [[nodiscard]] std::optional<std::int64_t> maybe_integer(std::size_t row,
                                                            std::size_t column) const;
    /// The same with a type of its own: `rows.integer<session_id>(0, 1)`.
    template <typed_integer Integer>
    [[nodiscard]] Integer integer(std::size_t row, std::size_t column) const {
        return Integer{integer(row, column)};
    }
    /// The same with a type of its own.
    template <typed_integer Integer>
    [[nodiscard]] std::optional<Integer> maybe_integer(std::size_t row, std::size_t column) const {
        if (const auto number = maybe_integer(row, column)) return Integer{*number};
        return std::nullopt;
    }

    // For drivers: append cells row by row, left to right.
    /// A cell that is NULL.
    void append_null() { cells_.push_back({0, null_cell}); }
    void append_text(std::string_view text);   ///< a cell, copied
    void append_integer(std::int64_t number);  ///< a cell, as decimal digits
    void set_affected(std::int64_t count) noexcept { affected_ = count; }  ///< for affected()

private:
    struct cell {
        std::size_t offset;
        std::size_t length;
    };
    static constexpr std::size_t null_cell = static_cast<std::size_t>(-1);

    [[nodiscard]] const cell& at(std::size_t row, std::size_t column) const;

    std::size_t columns_;
    std::int64_t affected_ = 0;
    std::string buffer_;
    std::vector<cell> cells_;
};

/// Transaction state of a connection.
enum class transaction_state : unsigned char {
    none,     ///< each statement commits by itself
    open,     ///< statements take effect with the commit
    failed,   ///< a statement failed, and the server refuses all but a rollback (PostgreSQL)
    unknown,  ///< the library does not know (now); ask the server
};

/// Receives the outcome of a posted statement, once: its result, or null and the failure. Runs on
/// the thread that reads the answer, inside a call of that connection: it must neither throw nor
/// use the connection.
using posted_answer = std::function<void(const result*, const error*)>;

/// A statement of a transaction, with its parameters. Both must outlive the call.
struct step {
    const statement& what;              ///< to be run
    std::span<const value> parameters;  ///< of `what`, from $1 on
};

struct connection_memory;     // src/sql/connection_memory.hpp
class forwarding_connection;  // sql/forwarding_connection.hpp
class notifications;          // sql/notifications.hpp

/// One connection to a database. One thread at a time. Every failure is a rowlock::error:
/// - the server refused: its errc by the dialect's table (sql/classify.hpp), the connection stays
///   usable unless alive() says otherwise;
/// - the connection broke, or the deadline passed without an answer, after something was sent:
///   errc::outcome_unknown, and alive() is false from then on;
/// - the connection was already known to be dead: errc::database_unreachable, nothing was sent.
/// A destructor closes without waiting for the server and never throws.
///
/// To stand between a client and its connections derive from forwarding_connection, not from this.
class connection {
public:
    connection() = default;
    connection(const connection&) = delete;
    connection& operator=(const connection&) = delete;
    virtual ~connection();

    /// Which SQL it understands.
    [[nodiscard]] virtual dialect speaks() const noexcept = 0;

    /// Runs a prepared statement. One round trip (two the first time on this connection).
    /// Outside a transaction it commits by itself.
    virtual result execute(const statement& what, std::span<const value> parameters,
                           deadline until) = 0;

    /// Runs one statement of plain text, without parameters and unprepared: BEGIN, COMMIT, SET,
    /// DDL, diagnostics. One round trip.
    virtual result query(std::string_view text, deadline until) = 0;

    /// Runs these statements as one transaction of their own and in one round trip, outside any
    /// other. Each must insert, update or delete exactly one row, and change something in it: if
    /// one does not, none takes effect. `afterwards`, unless it is empty, is SQL text that runs
    /// after the commit; its result does not matter here. One round trip more if it was rolled
    /// back.
    /// nullopt: not possible here (not in this library, not on a borrowed connection, not through a
    /// proxy that passes one statement at a time). Then nothing was done, and the caller sends the
    /// statements one by one.
    /// @return whether it was committed; false: a statement did not change exactly one row
    /// @throws error if a statement failed, and nothing has taken effect; errc::outcome_unknown if
    /// the connection broke, or the commit failed in a way that leaves its outcome open. No
    /// transaction is left open on a connection that is alive().
    virtual std::optional<bool> transact(std::span<const step> steps, std::string_view afterwards,
                                         deadline until);

    /// Sends a prepared statement without waiting for its answer: the next statement follows it at
    /// once, and the server runs one after the other, each with its own commit. The answer is read
    /// before that of the next call; if the connection is destroyed or breaks before, `on_answer`
    /// receives errc::outcome_unknown. No round trip, one if the answer to the statement that was
    /// posted last is still to be read.
    /// Returns false if that is impossible here (another library, a borrowed connection, a
    /// transaction, a statement that execute() has not prepared yet). Then nothing was sent, and
    /// `on_answer` is not called.
    virtual bool post(const statement& what, std::span<const value> parameters, deadline until,
                      posted_answer on_answer);

    /// False once a call has shown that the connection is gone. Sends nothing.
    [[nodiscard]] virtual bool alive() const noexcept = 0;

    /// Marks this connection as not to be used again, because it was left in an unknown state (a
    /// transaction that could not be rolled back). Its owner closes it.
    virtual void discard() noexcept { discarded_ = true; }
    /// Whether discard() was called.
    [[nodiscard]] virtual bool discarded() const noexcept { return discarded_; }

    /// False behind a transaction pooler, where settings and prepared statements of one statement
    /// belong to another client by the next.
    [[nodiscard]] virtual bool keeps_session_state() const noexcept { return true; }

    /// As far as the library knows. Sends nothing.
    [[nodiscard]] virtual transaction_state transaction() const noexcept {
        return transaction_state::unknown;
    }

    /// A descriptor that turns readable when the server closes the connection, or sends something
    /// unasked, while no call is running; -1 if the library exposes none. To be polled, not read.
    [[nodiscard]] virtual int socket() const noexcept { return -1; }

    /// The capability to be woken by the database, or null. Valid as long as this connection.
    [[nodiscard]] virtual sql::notifications* notifications() noexcept { return nullptr; }

    /// The id of the server process as announced when connecting, 0 if the library does not expose
    /// it. A pooler in between announces an invented one.
    [[nodiscard]] virtual std::int64_t announced_process() const noexcept { return 0; }

    /// How many round trips this connection has made, first preparations included. A statement on
    /// SQLite counts as one.
    [[nodiscard]] virtual std::uint64_t round_trips() const noexcept = 0;

protected:
    /// For the destructor of a borrowed connection, as its first act: restores the settings that
    /// were changed for its owner's sake. At most one round trip, none if the connection is gone.
    void put_settings_back() noexcept;

private:
    friend connection_memory& memory_of(connection& db);
    friend class forwarding_connection;

    /// What is learnt about one of the two is known of both from here on.
    void share_memory_of(connection& other);

    bool discarded_ = false;
    std::shared_ptr<connection_memory> memory_;  ///< what was learnt about this connection
};

/// Where rowlock's own tables are, so that several applications can share a database. Names need no
/// quoting: 1 to 31 lower-case letters, digits and underscores, no digit first.
struct table_names {
    /// PostgreSQL only: the schema that holds the tables; empty: found by the search path.
    std::string schema = {};
    /// First part of every table's name.
    std::string prefix = "rowlock_";

    friend bool operator==(const table_names&, const table_names&) = default;  ///< both names
};

/// A source of connections: one of our drivers' open(), or any function of yours that yields them,
/// such as an adapter over an existing pool. Copyable; connect() is called from several threads at
/// once. A client owns each connection it took until it destroys it, and changes its session
/// settings (isolation, timeouts, time zone). Copies share the pool of their row sessions, which is
/// closed with the last of them and of these sessions.
///
/// The source also says where rowlock's tables are: everything that takes a source (clients, row
/// sessions, the reaper, migrations, the history) uses those. Our drivers' open() takes the names
/// from the URL (`rowlock_schema`, `rowlock_prefix`); for any other source see with_tables().
class connection_source {
public:
    /// Makes a connection by the deadline, or throws rowlock::error.
    using connect_function = std::function<std::unique_ptr<connection>(deadline)>;
    /// Puts a connection into another one.
    using wrap_function = std::function<std::unique_ptr<connection>(std::unique_ptr<connection>)>;

    /// @param description names the database for people, without credentials.
    connection_source(dialect speaks, connect_function connect, std::string description);

    /// This source with other tables: `source.with_tables({.prefix = "shop_"})`. A source of yours
    /// around another passes that one's on: `.with_tables(inner.tables())`. Row sessions of the
    /// result have a pool of their own. Connects to nothing.
    /// @throws error errc::invalid_options for an unusable name, or a schema outside PostgreSQL
    [[nodiscard]] connection_source with_tables(table_names names) const;

    /// A new connection.
    /// @throws error errc::database_unreachable, access_denied, invalid_url …
    [[nodiscard]] std::unique_ptr<connection> connect(deadline until) const;
    /// This source, with each connection passed through `around`, which puts it into another one,
    /// such as a forwarding_connection. All else that the source says stays. `around` is called
    /// from several threads at once. Row sessions of the result have a pool of their own. Connects
    /// to nothing.
    /// @throws error errc::invalid_options for an empty function
    [[nodiscard]] connection_source wrapped(wrap_function around) const;
    /// The dialect of its connections.
    [[nodiscard]] dialect speaks() const noexcept { return speaks_; }
    /// Names the database, without credentials.
    [[nodiscard]] const std::string& description() const noexcept { return description_; }
    /// Where rowlock's tables are.
    [[nodiscard]] const table_names& tables() const noexcept { return tables_; }

private:
    friend class ::rowlock::detail::row_sessions;
    struct shared;

    dialect speaks_;
    connect_function connect_;
    std::string description_;
    table_names tables_;
    std::shared_ptr<shared> shared_;  ///< by the copies
};

/// @}

}  // namespace rowlock::sql
