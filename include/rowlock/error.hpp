#pragma once

#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

namespace rowlock {

/// @addtogroup options
/// @{

/// Error conditions that a program can act on. Contention is not an error: `try_` calls answer it
/// with an empty optional.
enum class errc {
    invalid_name = 1,      ///< the lock name breaks a rule of lock_name
    invalid_options,       ///< an option or argument is out of range, or two contradict
    invalid_url,           ///< the database URL cannot be understood
    lock_lost,             ///< the lease was held and no longer is
    not_owner,             ///< the caller does not hold the lock, or the object holds nothing
    would_deadlock,        ///< this thread holds that lock already, and would wait for itself
    deadlock,              ///< a cycle of waiters; this waiter must give way: release, start over
    timed_out,             ///< a deadline passed and nothing was done
    database_unreachable,  ///< no connection; nothing was sent
    access_denied,         ///< wrong user or password, or a missing right
    read_only,             ///< the server or file does not accept writes (a standby, a mode)
    out_of_resources,      ///< disk full, too many connections, no memory
    outcome_unknown,       ///< the statement was sent and no answer came: it may have happened
    schema_outdated,       ///< tables missing, older or newer than this library, or edited
    unsupported,           ///< this database, driver or set-up cannot do it
    unindexed_key,         ///< locking by this key would lock more than the row
    conflict,              ///< a concurrent change won; re-read and try again
    unique_violation,      ///< a row with this key exists
    wrong_process,         ///< the object belongs to the parent of this forked process
    broken,                ///< a latch or barrier broke: a party of it was lost, or it was reset
    database_error,        ///< the database refused for another reason; see sqlstate()
};

/// The name of the enumerator, such as "timed_out"; "unknown" for a value that has none.
[[nodiscard]] std::string_view to_string(errc code) noexcept;
/// Writes to_string().
std::ostream& operator<<(std::ostream& out, errc code);

/// The category of errc values, "rowlock".
[[nodiscard]] const std::error_category& error_category() noexcept;
/// An error code of error_category(); std::error_code converts from errc by it.
[[nodiscard]] std::error_code make_error_code(errc code) noexcept;

/// The one exception of this library. The message says what to do next and never contains
/// credentials or parameter values.
class error : public std::system_error {
public:
    /// The server's report, kept apart from our own message.
    struct server_report {
        std::string sqlstate;  ///< five characters, empty if the database has none
        int native_code = 0;   ///< MySQL errno or SQLite extended result code, else 0
        std::string message;   ///< the server's own words
    };

    /// An error that the server did not report.
    error(errc code, const std::string& message);
    /// An error with the server's report.
    error(errc code, const std::string& message, server_report report);

    /// Our message alone; code().message() is the kind in general words.
    [[nodiscard]] const char* what() const noexcept override { return message_->c_str(); }

    [[nodiscard]] errc kind() const noexcept { return kind_; }  ///< what a program can act on
    /// The server's, empty if it reported none.
    [[nodiscard]] const std::string& sqlstate() const noexcept { return report_.sqlstate; }
    /// As server_report::native_code.
    [[nodiscard]] int native_code() const noexcept { return report_.native_code; }
    /// The server's own text. May quote data: show it to an operator, not to the world.
    [[nodiscard]] const std::string& server_message() const noexcept { return report_.message; }

    /// True where the same call may succeed if repeated and repeating is safe: nothing was done
    /// (deadlock victim, serialization failure, timeout, unreachable, out of resources).
    /// False for outcome_unknown: find out first.
    [[nodiscard]] bool retryable() const noexcept;

private:
    errc kind_;
    std::shared_ptr<const std::string> message_;  ///< shared: copying an exception must not throw
    server_report report_;
};

/// @}

}  // namespace rowlock

template <>
struct std::is_error_code_enum<rowlock::errc> : std::true_type {};
