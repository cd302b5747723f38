// Do not include <sqlite3.h> here: SOCI's header declares SQLite a second time, in a namespace.
#include "driver/soci_backend.hpp"
#include <rowlock/sql/classify.hpp>

#include <soci/sqlite3/soci-sqlite3.h>

namespace rowlock::soci {
namespace {

sqlite_api::sqlite3* handle_of(::soci::session& session) {
    return static_cast<::soci::sqlite3_session_backend*>(session.get_backend())->conn_;
}

class sqlite3 final : public backend {
public:
    [[nodiscard]] sql::dialect speaks() const noexcept override { return sql::dialect::sqlite; }
    [[nodiscard]] const ::soci::backend_factory& factory() const noexcept override {
        return ::soci::sqlite3;
    }

    void require_usable(const std::string& connect_string) const override {
        const bool in_memory = connect_string.find(":memory:") != std::string::npos ||
                               connect_string.find("mode=memory") != std::string::npos;
        const bool nameless = connect_string.find_first_not_of(' ') == std::string::npos;
        if (in_memory || nameless) {
            throw error{
                errc::invalid_url,
                "SOCI connection string: a database in memory or without a name is refused, "
                "since no other process would see its locks; name a file"};
        }
    }

    // No busy timeout: this driver waits by itself, up to the deadline of each call.
    [[nodiscard]] std::string complete(const std::string& connect_string,
                                       std::chrono::seconds) const override {
        return connect_string;
    }

    void require_suitable(::soci::session&) const override {
        if (sqlite_api::sqlite3_libversion_number() < 3'035'000) {
            throw error{errc::unsupported, "SQLite 3.35 or newer is needed"};
        }
    }

    [[nodiscard]] failure read(const ::soci::soci_error& thrown,
                               ::soci::session& session) const override {
        failure found = read(thrown);
        sqlite_api::sqlite3* const handle = handle_of(session);
        if (found.report.native_code == 0) return found;
        // SOCI keeps only the primary code, and puts its own words before SQLite's.
        const int extended = sqlite_api::sqlite3_extended_errcode(handle);
        if ((extended & 0xff) == (found.report.native_code & 0xff)) {
            found.report.native_code = extended;
            found.report.message = sqlite_api::sqlite3_errmsg(handle);
        }
        const int code = found.report.native_code;
        found.kind = sql::classify_sqlite(code, found.report.message);
        found.connection_lost = found.kind == errc::outcome_unknown;
        found.worth_waiting = (code & 0xff) == SQLITE_BUSY && found.kind == errc::timed_out &&
                              sqlite_api::sqlite3_txn_state(handle, nullptr) == SQLITE_TXN_NONE;
        return found;
    }

    [[nodiscard]] failure read(const ::soci::soci_error& thrown) const override {
        failure found;
        found.report.message = thrown.get_error_message();
        if (const auto* detailed = dynamic_cast<const ::soci::sqlite3_soci_error*>(&thrown)) {
            found.report.native_code = detailed->result();
            found.kind = sql::classify_sqlite(detailed->result(), found.report.message);
        }
        return found;
    }

    [[nodiscard]] sql::transaction_state transaction(::soci::session& session) const override {
        return sqlite_api::sqlite3_get_autocommit(handle_of(session)) != 0
                   ? sql::transaction_state::none
                   : sql::transaction_state::open;
    }

    [[nodiscard]] std::int64_t mark(::soci::session& session) const override {
        sqlite_api::sqlite3* const handle = handle_of(session);
        return sqlite_api::sqlite3_total_changes(handle);
    }

    // For a statement that returns rows SOCI asks too early, and gets an earlier statement's count.
    [[nodiscard]] std::int64_t affected(::soci::details::statement_backend&,
                                        ::soci::session& session,
                                        std::int64_t before) const override {
        sqlite_api::sqlite3* const handle = handle_of(session);
        if (sqlite_api::sqlite3_total_changes(handle) == before) return 0;
        return sqlite_api::sqlite3_changes(handle);
    }
};

}  // namespace

const backend& sqlite3_backend() noexcept {
    static const sqlite3 instance;
    return instance;
}

}  // namespace rowlock::soci
