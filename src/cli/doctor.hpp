#pragma once

#include "cli/database.hpp"
#include "sql/statements.hpp"
#include <rowlock/error.hpp>
#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace rowlock::cli {

/// One finding of `rowlock doctor`.
struct finding {
    enum class verdict { ok, warn, fail };
    verdict how;
    std::string check;   ///< what was checked
    std::string seen;    ///< what was seen
    std::string advice;  ///< what to do; empty if ok
};

/// A database under examination, with the findings so far.
class examination {
public:
    /// reads: only checks of the database itself, by SELECT on its tables and settings. For
    /// monitoring, by a role that may do no more.
    enum class scope : bool { everything, reads };

    /// Connects.
    /// @throws error
    explicit examination(const database& in, scope of = scope::everything)
        : in_{in}, of_{of}, db_{stated_connection()} {}

    void ok(std::string check, std::string seen) {
        add(finding::verdict::ok, std::move(check), std::move(seen), {});
    }
    void warn(std::string check, std::string seen, std::string advice) {
        add(finding::verdict::warn, std::move(check), std::move(seen), std::move(advice));
    }
    void fail(std::string check, std::string seen, std::string advice) {
        add(finding::verdict::fail, std::move(check), std::move(seen), std::move(advice));
    }

    /// Runs one check; an exception becomes a warning that the check could not be made.
    template <typename Check>
    void look_at(const std::string& check, Check action) {
        if (on_check) on_check(check);
        try {
            action();
        } catch (const error& failure) {
            warn(check, "could not be checked: " + message_of(failure), "see the message");
        }
    }

    /// The same for a check that writes, takes long, or is about this connection and its user.
    template <typename Check>
    void try_out(const std::string& check, Check action) {
        if (of_ == scope::everything) look_at(check, action);
    }

    /// Whether this check has been made and failed.
    [[nodiscard]] bool has_failed(std::string_view check) const;

    /// One statement on the connection under examination.
    sql::result query(std::string_view text);
    /// The first cell of the answer; empty if there is none.
    std::string value(std::string_view text);
    [[nodiscard]] sql::connection& connection() const noexcept { return *db_; }
    /// With the defaults of its user, which no setting of ours hides.
    [[nodiscard]] std::unique_ptr<sql::connection> another_connection() const;
    /// A connection that is set up as those of a client: statements() that compare with the
    /// database's clock need one. Opened by the first call. Its statements have counting_time.
    /// @throws error
    sql::connection& rowlock_connection();
    [[nodiscard]] sql::statement_set statements() const;
    [[nodiscard]] scope extent() const noexcept { return of_; }
    /// The deadline of a statement that is sent now.
    [[nodiscard]] static sql::deadline soon();
    /// Called before each check with its name.
    std::function<void(const std::string&)> on_check{};
    /// How long it may take to count the rows of all tables: tens of millions.
    static constexpr std::chrono::seconds counting_time{30};
    [[nodiscard]] const database& where() const noexcept { return in_; }
    [[nodiscard]] const std::vector<finding>& findings() const noexcept { return findings_; }

private:
    [[nodiscard]] std::unique_ptr<sql::connection> stated_connection() const;
    void add(finding::verdict how, std::string check, std::string seen, std::string advice) {
        findings_.push_back({how, std::move(check), std::move(seen), std::move(advice)});
    }

    const database& in_;
    const scope of_;
    std::unique_ptr<sql::connection> db_;
    std::unique_ptr<sql::connection> set_up_;
    std::vector<finding> findings_;
};

/// Makes all checks that the examination's scope allows.
void examine(examination& patient);

/// Whether the tables outlive a crash, and what keeps their rows locked.
void examine_tables(examination& patient);
void examine_postgresql(examination& patient);
void examine_mysql(examination& patient);
void examine_sqlite(examination& patient);
/// The defaults of this user: what is harmless to rowlock's own connections is named all the same.
void examine_settings(examination& patient, bool has_tables);

/// What each strategy does on this server, or why it is refused.
struct strategy_report {
    const char* lease;
    const char* fence;
    const char* row_lock;
    const char* advisory_lock;
    const char* version;
};

/// One check each. None fails: a refused strategy needs no repair.
void report_strategies(examination& patient, const strategy_report& here);

/// @param cipher empty if the connection is not encrypted
/// @param local whether the connection stays on this machine
/// @param parameter of the URL that requests TLS
void report_tls(examination& patient, const std::string& cipher, bool local,
                std::string_view parameter);

/// Compares dotted version numbers.
[[nodiscard]] bool is_at_least(std::string_view version, std::string_view wanted);

}  // namespace rowlock::cli
