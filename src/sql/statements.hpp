#pragma once

#include <rowlock/sql/connection.hpp>

#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

/// The SQL of one dialect, loaded from src/<feature>/sql/<dialect>.sql and the files that it shares
/// with others, where each statement begins with a line `-- statement <name>` and says what it does, what $1 … $n are and
/// why it is right. {name} stands for the fragment of that name in src/sql/fragments/. A shared
/// text names types as PostgreSQL needs them, `$1::bigint`; MySQL and SQLite get it without.
namespace rowlock::sql {

struct statement_options {
    table_names tables{};
    /// PostgreSQL: the quoted schema where the tables were found, though `tables` names none.
    std::string found_in{};
    /// Read the database's clock from the SQL function rowlock_testing_now() (SQLite only).
    bool testing_clock = false;
};

/// PostgreSQL: the quoted schema of our tables, once a connection of our own has learnt it.
/// Thread-safe.
class found_schema {
public:
    void set(std::string_view quoted) {
        const std::lock_guard lock{mutex_};
        quoted_ = quoted;
    }
    [[nodiscard]] std::string get() const {
        const std::lock_guard lock{mutex_};
        return quoted_;
    }

private:
    mutable std::mutex mutex_;
    std::string quoted_;
};

/// The statements of one dialect, on the tables of one schema and prefix. Each is loaded when it is
/// first asked for; later answers are copies of it. So two protocols that run the same statement
/// share its prepared handle on every connection. Copies of a set are the same set. Thread-safe.
class statement_set {
public:
    /// @throws error errc::invalid_options for an unusable schema or prefix
    explicit statement_set(sql::dialect speaks, const statement_options& options = {});

    /// @throws error errc::unsupported if the dialect has no such statement
    [[nodiscard]] statement operator()(std::string_view name) const;

    /// A fragment that a caller writes itself: what a server does not take as a parameter.
    struct piece {
        std::string_view name;
        std::string text;
    };
    /// The text of a statement with these pieces in the place of the fragments of their names.
    /// @throws error as operator()
    [[nodiscard]] std::string text_of(std::string_view name,
                                      std::initializer_list<piece> pieces) const;

    [[nodiscard]] sql::dialect speaks() const noexcept;
    [[nodiscard]] const statement_options& options() const noexcept;
    /// The same text with the names of our tables.
    [[nodiscard]] std::string qualified(std::string_view text) const;
    /// Where our tables were found. Empty if the options name the schema.
    [[nodiscard]] found_schema& found_in() const noexcept;

private:
    struct state;
    std::shared_ptr<state> state_;
};

/// Loads one statement by name, for callers that need no session and no lease.
/// @throws error errc::invalid_options for an unusable schema or prefix; errc::unsupported if the
/// dialect has no such statement
[[nodiscard]] statement load_statement(dialect which, std::string_view name,
                                       const statement_options& options = {});

/// A statement as it is written: with its comment, its fragments not filled in.
struct written_statement {
    std::string_view name;
    std::string_view file;  ///< below src/
    std::string_view text;
};

/// Every statement of a dialect, including those of common.sql, ordered by name.
[[nodiscard]] std::vector<written_statement> written_statements(dialect which);

/// Drops comment lines, which are for readers of the files and not for the wire, and blank lines
/// around the rest.
[[nodiscard]] std::string without_comments(std::string_view text);

}  // namespace rowlock::sql
