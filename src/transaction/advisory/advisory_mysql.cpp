#include "sql/run_statement.hpp"
#include "sql/server_facts.hpp"
#include "sql/session_settings.hpp"
#include "sql/statements.hpp"
#include "sql/value_list.hpp"
#include "transaction/advisory/advisory_dialects.hpp"
#include <rowlock/error.hpp>

#include <array>

namespace rowlock::detail {
namespace {

using std::chrono::milliseconds;

sql::statement mysql_statement(std::string_view name) {
    return sql::load_statement(sql::dialect::mysql, name);
}

[[noreturn]] void refuse_key(const char* what) {
    throw error{
        errc::unsupported,
        std::string{what} + " is not a key of GET_LOCK: use a name or advisory_key::verbatim()"};
}

[[noreturn]] void refuse_shared() {
    throw error{errc::unsupported, "GET_LOCK knows no shared locks: use lock() or try_lock()"};
}

class mysql_advisory final : public advisory_protocol {
public:
    [[nodiscard]] bool depends_on_schema(const advisory_key& key) const noexcept override {
        return key.type() == advisory_key::kind::name;
    }
    [[nodiscard]] server_key key_of(const advisory_key& key, std::string_view domain,
                                    std::string_view schema) const override {
        switch (key.type()) {
            case advisory_key::kind::name:
                return {.text = advisory_text(key.str(), schema, domain)};
            case advisory_key::kind::number:
                refuse_key("a number");
            case advisory_key::kind::pair:
                refuse_key("a pair of numbers");
            case advisory_key::kind::verbatim:
                return {.text = key.str()};
        }
        throw error{errc::invalid_options, "an advisory key of an unknown kind"};
    }
    void require_mode(advisory_mode mode) const override {
        if (mode == advisory_mode::shared) refuse_shared();
    }

    [[nodiscard]] server_session set_up(sql::connection& db, milliseconds /*statement*/,
                                        milliseconds keepalive_timeout,
                                        sql::deadline until) const override {
        const auto& facts = sql::facts_of(db, until);
        if (facts.member_of != sql::cluster::none) {
            throw error{errc::unsupported,
                        std::string{"this server is a "} + to_string(facts.member_of) +
                            ", and every other of them grants GET_LOCK for itself: use a lease, "
                            "which all of them certify"};
        }
        sql::state_settings(db, {.idle = keepalive_timeout}, until);
        const auto row = run(db, setup_, until);
        return {.process = row.integer(0, 0), .schema = std::string{row.text(0, 1)}};
    }

    [[nodiscard]] bool try_lock(sql::connection& db, const server_session& session,
                                const server_key& key, advisory_mode /*mode*/,
                                sql::deadline until) const override {
        return read_grant(db, session, run(db, try_, until, key.text));
    }

    /// MySQL waits in whole seconds.
    [[nodiscard]] bool wait(sql::connection& db, const server_session& session,
                            const server_key& key, advisory_mode /*mode*/, milliseconds slice,
                            sql::deadline until) const override {
        if (!sql::facts_of(db, until).mariadb) {
            slice = std::chrono::ceil<std::chrono::seconds>(slice);
        }
        return read_grant(db, session, run(db, wait_, until, key.text, slice.count()));
    }

    [[nodiscard]] bool unlock(sql::connection& db, const server_session& session,
                              const server_key& key, advisory_mode /*mode*/,
                              sql::deadline until) const override {
        return read_unlock(db, session, run(db, unlock_, until, key.text));
    }

    void unlock_all(sql::connection& db, sql::deadline until) const override {
        run(db, unlock_all_, until);
    }

    [[nodiscard]] std::vector<bool> held(sql::connection& db, const server_session& session,
                                         std::span<const wanted> locks,
                                         sql::deadline until) const override {
        constexpr std::size_t at_once = 8;
        std::vector<bool> answers;
        const auto ask = [&](std::span<const wanted> part, std::size_t) {
            std::array<sql::value, at_once> names;
            // An empty name is an error on MySQL.
            names.fill(sql::value{"rowlock"});
            const auto name_of = [](const wanted& lock) -> const std::string& {
                return lock.key.text;
            };
            if (!part.empty()) sql::put_list(names, 0, part, name_of, at_once);
            const auto row = db.execute(held_, names, until);
            require_session(db, session, row.integer(0, 0));
            require_writable(row.integer(0, 1) == 1);
            for (std::size_t i = 0; i < part.size(); ++i) {
                answers.push_back(row.maybe_integer(0, 2 + i) == 1);
            }
        };
        // Without locks, too: whether the session is ours and the server writable.
        if (locks.empty()) ask(locks, 0);
        sql::for_each_part(locks, ask, at_once);
        return answers;
    }

    [[nodiscard]] holder_state holder_status(sql::connection& /*db*/,
                                             const server_session& /*session*/,
                                             const server_key& /*key*/,
                                             sql::deadline /*until*/) const override {
        refuse_shared();
    }

private:
    const sql::statement setup_ = mysql_statement("advisory_setup");
    const sql::statement try_ = mysql_statement("advisory_try");
    const sql::statement wait_ = mysql_statement("advisory_wait");
    const sql::statement unlock_ = mysql_statement("advisory_unlock");
    const sql::statement unlock_all_ = mysql_statement("advisory_unlock_all");
    const sql::statement held_ = mysql_statement("advisory_held");
};

}  // namespace

std::unique_ptr<const advisory_protocol> make_mysql_advisory() {
    return std::make_unique<mysql_advisory>();
}

}  // namespace rowlock::detail
