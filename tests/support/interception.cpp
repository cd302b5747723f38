#include "support/interception.hpp"

#include <rowlock/sql/forwarding_connection.hpp>

#include <optional>
#include <span>
#include <string>

namespace support {

using namespace rowlock;

namespace {

/// "acquire" from "/* rowlock acquire */ with …"; other text unchanged.
std::string_view name_of(std::string_view text) {
    constexpr std::string_view tag = "/* rowlock ";
    if (!text.starts_with(tag)) return text;
    text.remove_prefix(tag.size());
    return text.substr(0, text.find(" */"));
}

/// The parameters of the statement whose hook runs in this thread.
thread_local std::span<const sql::value> carried;

}  // namespace

class intercepted_connection final : public sql::forwarding_connection {
public:
    intercepted_connection(interception& by, std::unique_ptr<sql::connection> inner)
        : forwarding_connection{std::move(inner)}, by_{by}, generation_{by.generation_} {}

    sql::result execute(const sql::statement& what, std::span<const sql::value> parameters,
                        sql::deadline until) override {
        carried = parameters;
        struct forget {
            ~forget() { carried = {}; }
        } const afterwards;
        return run(name_of(what.text()), [&] { return inner().execute(what, parameters, until); });
    }

    sql::result query(std::string_view text, sql::deadline until) override {
        return run(name_of(text), [&] { return inner().query(text, until); });
    }

    std::optional<bool> transact(std::span<const sql::step> steps, std::string_view afterwards,
                                 sql::deadline until) override {
        if (!by_.transactions || inner().speaks() != sql::dialect::mysql) return std::nullopt;
        std::optional<bool> committed;
        run("transaction", [&] {
            committed = inner().transact(steps, afterwards, until);
            return sql::result{};
        });
        return committed;
    }

    /// Every statement passes through execute(), so that a test can step in.
    bool post(const sql::statement& /*what*/, std::span<const sql::value> /*parameters*/,
              sql::deadline /*until*/, sql::posted_answer /*told*/) override {
        return false;
    }

    [[nodiscard]] bool alive() const noexcept override { return !broken_ && inner().alive(); }

private:
    template <typename Action>
    sql::result run(std::string_view name, Action action) {
        if (broken_) {
            throw error{errc::database_unreachable, "this connection broke before"};
        }
        if (generation_ != by_.generation_) {
            broken_ = true;
            throw error{errc::outcome_unknown, "the connection broke"};
        }
        if (std::this_thread::get_id() == by_.counted_) ++by_.statements;
        try {
            by_.run_before(name);
            auto answer = action();
            by_.run_after(name);
            return answer;
        } catch (const error& failure) {
            broken_ = broken_ || failure.kind() == errc::outcome_unknown;
            throw;
        }
    }

    interception& by_;
    int generation_;
    bool broken_ = false;
};

void interception::before(hook action) {
    const std::lock_guard lock{mutex_};
    hooks_.before = std::move(action);
}

void interception::after(hook action) {
    const std::lock_guard lock{mutex_};
    hooks_.after = std::move(action);
}

void interception::lose_commit(std::function<bool(std::string_view name)> is_of_it,
                               bool in_transaction, std::atomic<bool>& lost) {
    const auto begun = std::make_shared<std::atomic<bool>>(false);
    after([is_of_it = std::move(is_of_it), in_transaction, &lost, begun](std::string_view name) {
        const bool its = is_of_it(name);
        const bool commits = in_transaction ? *begun && name == "commit" : its;
        if (its) *begun = true;
        if (commits && !lost.exchange(true)) lose_reply();
    });
}

void interception::lose_reply() {
    throw error{errc::outcome_unknown, "the reply was lost"};
}

void interception::refuse_to_send() {
    throw error{errc::database_unreachable, "the network is down"};
}

std::int64_t interception::parameter(std::size_t number) {
    return carried[number - 1].integer();
}

sql::connection_source interception::wrap(sql::connection_source inner) {
    const auto dialect = inner.speaks();
    const auto description = inner.description();
    const auto tables = inner.tables();
    return sql::connection_source{dialect,
                                  [this, inner = std::move(inner)](sql::deadline until) {
                                      run_before("connect");
                                      return std::make_unique<intercepted_connection>(
                                          *this, inner.connect(until));
                                  },
                                  description}
        .with_tables(tables);
}

void interception::run_before(std::string_view name) const {
    hook action;
    {
        const std::lock_guard lock{mutex_};
        action = hooks_.before;
    }
    if (action) action(name);
}

void interception::run_after(std::string_view name) const {
    hook action;
    {
        const std::lock_guard lock{mutex_};
        action = hooks_.after;
    }
    if (action) action(name);
}

}  // namespace support
