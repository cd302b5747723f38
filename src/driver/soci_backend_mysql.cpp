#include "driver/soci_backend.hpp"
#include <rowlock/sql/classify.hpp>

#include <soci/mysql/soci-mysql.h>

#include <algorithm>
#include <array>

namespace rowlock::soci {
namespace {

// In seconds. A statement deadline is at most one minute; a server silent for longer is dead.
constexpr auto silence_is_death = "65";

// True for the client library's own numbers, and for those with which a server ends the connection.
// Other refusals by a node that is not ready leave the connection as it is.
bool ends_connection(int error_number) noexcept {
    constexpr std::array goodbyes{1053, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 3169, 4031};
    return (error_number >= 2000 && error_number < 3000) ||
           std::ranges::find(goodbyes, error_number) != goodbyes.end();
}

class mysql final : public backend {
public:
    [[nodiscard]] sql::dialect speaks() const noexcept override { return sql::dialect::mysql; }
    [[nodiscard]] const ::soci::backend_factory& factory() const noexcept override {
        return ::soci::mysql;
    }

    void require_usable(const std::string& connect_string) const override {
        if (value_of(connect_string, "reconnect")) {
            throw error{errc::invalid_url,
                        "SOCI connection string: leave out 'reconnect'; a transaction would be cut "
                        "in two without notice"};
        }
    }

    [[nodiscard]] std::string complete(const std::string& connect_string,
                                       std::chrono::seconds to_connect) const override {
        std::string made = connect_string;
        const auto add = [&](std::string_view key, std::string_view text) {
            if (value_of(connect_string, key)) return;
            made.append(" ").append(key).append("=").append(text);
        };
        add("connect_timeout", std::to_string(std::max<std::int64_t>(1, to_connect.count())));
        add("read_timeout", silence_is_death);
        add("write_timeout", silence_is_death);
        add("charset", "utf8mb4");
        return made;
    }

    void require_suitable(::soci::session& session) const override {
        auto* const ours = static_cast<::soci::mysql_session_backend*>(session.get_backend());
        bool reconnects = false;
        if (mysql_get_option(ours->conn_, MYSQL_OPT_RECONNECT, &reconnects) == 0 && reconnects) {
            throw error{errc::unsupported,
                        "this SOCI session reconnects by itself; open it without 'reconnect', or a "
                        "transaction is cut in two without notice"};
        }
    }

    // Each answer of the server carries the transaction state. Without autocommit the next
    // statement begins a transaction, so one counts as open. A refusal carries none: a deadlock has
    // rolled back everything.
    [[nodiscard]] sql::transaction_state transaction(::soci::session& session) const override {
        const auto* const ours = static_cast<::soci::mysql_session_backend*>(session.get_backend());
        if (mysql_errno(ours->conn_) != 0) return sql::transaction_state::unknown;
        const unsigned status = ours->conn_->server_status;
        const bool autocommit = (status & SERVER_STATUS_AUTOCOMMIT) != 0;
        const bool within = (status & SERVER_STATUS_IN_TRANS) != 0;
        return within || !autocommit ? sql::transaction_state::open : sql::transaction_state::none;
    }

    [[nodiscard]] failure read(const ::soci::soci_error& thrown, ::soci::session&) const override {
        failure found = read(thrown);
        found.connection_lost = ends_connection(found.report.native_code);
        return found;
    }

    [[nodiscard]] failure read(const ::soci::soci_error& thrown) const override {
        failure found;
        const auto* const detailed = dynamic_cast<const ::soci::mysql_soci_error*>(&thrown);
        if (detailed == nullptr) {
            // SOCI's own error; about a connection string it quotes nothing.
            found.report.message = thrown.get_error_message();
            if (found.report.message.find("onnection string") != std::string::npos) {
                found.kind = errc::invalid_url;
            }
            return found;
        }
        found.report.native_code = static_cast<int>(detailed->err_num_);
        found.report.message = thrown.get_error_message();
        found.kind = sql::classify_mysql(found.report.native_code, found.report.message);
        return found;
    }
};

}  // namespace

const backend& mysql_backend() noexcept {
    static const mysql instance;
    return instance;
}

}  // namespace rowlock::soci
