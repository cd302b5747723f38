#include "driver/postgresql_encoding.hpp"
#include "driver/postgresql_transaction.hpp"
#include "driver/soci_backend.hpp"
#include <rowlock/driver/postgresql.hpp>
#include <rowlock/sql/classify.hpp>

#include <soci/postgresql/soci-postgresql.h>

#include <algorithm>

namespace rowlock::soci {
namespace {

bool is_url(std::string_view connect_string) noexcept {
    return connect_string.starts_with("postgresql://") || connect_string.starts_with("postgres://");
}

// SOCI keeps no SQLSTATE of a failed connection, so this reads the server's words. They are English
// unless its lc_messages says otherwise; then a refusal reads as "unreachable".
errc classify_connect(std::string_view message) noexcept {
    const auto says = [message](std::string_view words) {
        return message.find(words) != std::string_view::npos;
    };
    if (says("authentication failed") || says("no password supplied") ||
        says("pg_hba.conf rejects") || says("no pg_hba.conf entry") ||
        says("is not permitted to log in") || says("permission denied for database") ||
        (says("role \"") && says("\" does not exist"))) {
        return errc::access_denied;
    }
    if (says("too many clients") || says("too many connections") ||
        says("connection slots are reserved")) {
        return errc::out_of_resources;
    }
    return errc::database_unreachable;
}

// SOCI puts its own words before the server's, and libpq quotes the statement after them.
std::string server_words(const std::string& message) {
    std::size_t begin = 0;
    if (const auto at = message.find("connection to server"); at != std::string::npos) begin = at;
    for (const std::string_view word : {"ERROR:  ", "FATAL:  "}) {
        if (const auto at = message.find(word); at != std::string::npos) begin = at + word.size();
    }
    return message.substr(begin, message.find('\n', begin) - begin);
}

class postgresql final : public backend {
public:
    [[nodiscard]] sql::dialect speaks() const noexcept override { return sql::dialect::postgresql; }
    [[nodiscard]] const ::soci::backend_factory& factory() const noexcept override {
        return ::soci::postgresql;
    }

    void require_usable(const std::string& connect_string) const override {
        if (value_of(connect_string, "singlerow") || value_of(connect_string, "singlerows")) {
            throw error{errc::invalid_url, "SOCI connection string: leave out 'singlerow'"};
        }
    }

    // In single-row mode SOCI leaves the end of each answer unread, and the next statement fails.
    void require_suitable(::soci::session& session) const override {
        const auto* const ours =
            static_cast<::soci::postgresql_session_backend*>(session.get_backend());
        rowlock::postgresql::require_utf8_database(ours->conn_);
        rowlock::postgresql::require_utf8_client(ours->conn_);
        if (ours->single_row_mode_) {
            throw error{errc::unsupported,
                        "this SOCI session is in single-row mode; open it without 'singlerow'"};
        }
    }

    [[nodiscard]] std::string describe(const std::string& connect_string) const override {
        if (!is_url(connect_string)) return backend::describe(connect_string);
        const std::string place = connect_string.substr(0, connect_string.find('?'));
        const auto at = place.rfind('@');
        const auto slashes = place.find("//") + 2;
        return "PostgreSQL through SOCI postgresql://" +
               place.substr(at == std::string::npos ? slashes : at + 1);
    }

    [[nodiscard]] std::string complete(const std::string& connect_string,
                                       std::chrono::seconds to_connect) const override {
        const bool url = is_url(connect_string);
        std::string made = connect_string;
        const auto add = [&](std::string_view key, const std::string& text) {
            if (connect_string.find(key) != std::string::npos) return;
            if (url) {
                made += made.find('?') == std::string::npos ? '?' : '&';
            } else {
                made += ' ';
            }
            made.append(key).append("=").append(text);
        };
        // libpq rounds 1 up to 2.
        add("connect_timeout", std::to_string(std::max<std::int64_t>(2, to_connect.count())));
        const rowlock::postgresql::options usual;
        add("keepalives_idle", std::to_string(usual.keepalives_idle_s));
        add("keepalives_interval", std::to_string(usual.keepalives_interval_s));
        add("keepalives_count", std::to_string(usual.keepalives_count));
        add("client_encoding", "UTF8");
        add("tcp_user_timeout", std::to_string(usual.tcp_user_timeout_ms));
        return made;
    }

    [[nodiscard]] failure read(const ::soci::soci_error& thrown, ::soci::session&) const override {
        failure found;
        const std::string message = thrown.get_error_message();
        found.report.message = server_words(message);
        const auto* const detailed = dynamic_cast<const ::soci::postgresql_soci_error*>(&thrown);
        if (detailed == nullptr) return found;  // SOCI itself refused: a conversion, a count
        const std::string sqlstate = detailed->sqlstate();
        // SOCI fills in blanks where libpq had none.
        const bool blank = sqlstate.find_first_not_of(' ') == std::string::npos;
        if (!blank) found.report.sqlstate = sqlstate;
        found.kind = blank ? errc::database_unreachable : sql::classify_postgresql(sqlstate);
        // SOCI's words for PQstatus() == CONNECTION_BAD.
        found.connection_lost =
            found.kind == errc::database_unreachable ||
            message.find("Fatal error. Connection failed.") != std::string::npos;
        return found;
    }

    [[nodiscard]] failure read(const ::soci::soci_error& thrown) const override {
        failure found;
        const std::string message = thrown.get_error_message();
        found.kind = classify_connect(message);
        // Before it reaches a server, libpq may quote the connection string.
        if (message.find("connection to server") != std::string::npos) {
            found.report.message = server_words(message);
        }
        return found;
    }

    [[nodiscard]] sql::transaction_state transaction(::soci::session& session) const override {
        const auto* const ours =
            static_cast<::soci::postgresql_session_backend*>(session.get_backend());
        return rowlock::postgresql::transaction_of(ours->conn_);
    }

    void forget(::soci::details::statement_backend& statement) const override {
        // The statement's destructor would DEALLOCATE a statement with a name. SOCI exports no type
        // information of it.
        static_cast<::soci::postgresql_statement_backend&>(statement).statementName_.clear();
    }
};

}  // namespace

const backend& postgresql_backend() noexcept {
    static const postgresql instance;
    return instance;
}

}  // namespace rowlock::soci
