#pragma once

#include <rowlock/sql/connection.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace contract {

/// A test's own empty database, which the destructor removes with its contents.
class scratch_database {
public:
    /// Null if there is no server: the test case then counts as skipped, or fails.
    [[nodiscard]] static std::unique_ptr<scratch_database> make(rowlock::sql::dialect speaks);

    scratch_database(const scratch_database&) = delete;
    scratch_database& operator=(const scratch_database&) = delete;
    ~scratch_database();

    [[nodiscard]] rowlock::sql::dialect speaks() const noexcept { return speaks_; }
    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    [[nodiscard]] const rowlock::sql::connection_source& source() const noexcept {
        return *source_;
    }
    /// The same database as another user of the server.
    [[nodiscard]] rowlock::sql::connection_source source_as(const std::string& user,
                                                            const std::string& password) const;

    /// Runs one statement on a connection that is reused for the next.
    rowlock::sql::result run(std::string_view sql);
    /// Closes that connection until it is needed again: SQLite's must not be open across fork().
    void disconnect() noexcept { connection_.reset(); }
    /// Tables whose names start with `prefix`, in any schema, in order of their names.
    [[nodiscard]] std::vector<std::string> tables(std::string_view prefix = "rowlock_");

private:
    scratch_database() = default;

    rowlock::sql::dialect speaks_{};
    std::string name_;
    std::string url_;         ///< the database's or the file's URL
    std::string server_url_;  ///< the server on which databases are made
    std::string folder_;      ///< the file's folder
    std::optional<rowlock::sql::connection_source> source_;
    std::unique_ptr<rowlock::sql::connection> connection_;
};

/// The same source, except that `before` gets the text of each statement first, on every
/// connection. The call throws what `before` throws.
[[nodiscard]] rowlock::sql::connection_source watched(const rowlock::sql::connection_source& source,
                                                      std::function<void(std::string_view)> before);

/// A source that always returns the same connection, which stays open afterwards, as an
/// application's pool does. One user at a time.
[[nodiscard]] rowlock::sql::connection_source lending(
    std::shared_ptr<rowlock::sql::connection> connection);

}  // namespace contract
