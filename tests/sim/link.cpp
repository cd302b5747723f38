#include "link.hpp"

#include "driver/refusal.hpp"
#include "pollable.hpp"
#include "scheduler.hpp"
#include "test_dialect.hpp"
#include <rowlock/sql/notifications.hpp>

#include <sqlite3.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

namespace rowlock::sim {
namespace {

/// Also reports the changes of the file, as the product's driver does by inotify.
class link final : public sql::connection, private sql::notifications {
public:
    link(database& to, std::shared_ptr<server_session> session)
        : to_{to}, session_{std::move(session)} {}
    ~link() override {
        // No message: the other end sees it a moment later.
        to_.after(world->draws.between(10 * us, 200 * us),
                  [&to = to_, session = session_] { to.close(session); });
    }

    [[nodiscard]] sql::dialect speaks() const noexcept override { return sql::dialect::sqlite; }
    [[nodiscard]] bool alive() const noexcept override { return alive_; }
    [[nodiscard]] sql::transaction_state transaction() const noexcept override { return state_; }
    [[nodiscard]] std::uint64_t round_trips() const noexcept override { return round_trips_; }
    [[nodiscard]] sql::notifications* notifications() noexcept override { return this; }

    /// As the product's drivers: unless there are traits that ask for it.
    [[nodiscard]] std::int64_t announced_process() const noexcept override {
        return presented().notifies ? 1 : 0;
    }

    sql::result execute(const sql::statement& what, std::span<const sql::value> parameters,
                        sql::deadline until) override {
        return call(request_of(what, parameters), writes(what.text()), until);
    }
    sql::result query(std::string_view text, sql::deadline until) override {
        auto made = std::make_shared<request>();
        made->text = text;
        made->name = name_of(text);
        return call(made, writes(text), until);
    }

private:
    static bool writes(std::string_view text) {
        return text.find("update rowlock") != text.npos || text.find("insert ") != text.npos ||
               text.find("delete ") != text.npos || text.starts_with("BEGIN") ||
               text.starts_with("begin");
    }

    [[nodiscard]] i64 way() const {
        auto& draws = world->draws;
        const auto& sky = to_.sky;
        if (draws.chance(sky.slow)) return draws.skewed(sky.longest_way, sky.slow_max);
        return draws.skewed(sky.shortest_way, sky.longest_way);
    }

    [[nodiscard]] i64 way_of_answer() const {
        const auto& sky = to_.sky;
        i64 time = way();
        const bool affected = sky.slow_answers_of < 0 || sky.slow_answers_of == world->here().id;
        if (affected && world->draws.chance(sky.slow_answers)) {
            time += world->draws.between(0, sky.slow_max);
        }
        return time;
    }

    /// A request that was sent: how long its answer is waited for, and how that may end.
    struct journey {
        i64 end = 0;
        bool sent = false, reported = false;
    };

    static i64 local_end(sql::deadline until) {
        return world->here().truth(until.time_since_epoch().count());
    }

    static std::shared_ptr<request> request_of(const sql::statement& what,
                                               std::span<const sql::value> parameters) {
        auto made = std::make_shared<request>();
        made->prepared = &shared_statement(what);
        made->name = name_of(what.text());
        made->texts.reserve(parameters.size());
        for (const auto& parameter : parameters) {
            if (parameter.type() == sql::value::kind::text) {
                made->texts.emplace_back(parameter.text());
                made->parameters.emplace_back(std::string_view{made->texts.back()});
            } else {
                made->parameters.push_back(parameter);
            }
        }
        return made;
    }

    sql::result call(const std::shared_ptr<request>& made, bool writing, sql::deadline until) {
        auto& draws = world->draws;
        const auto& sky = to_.sky;
        const i64 limit = local_end(until);
        if (!alive_) throw driver::already_dead();
        if (world->now() >= limit) throw driver::too_late();
        if (draws.chance(sky.cut) || session_->closed) {
            world->log("  " + made->name + ": the connection was cut");
            alive_ = false;
            to_.close(session_);
            throw driver::already_dead();
        }
        ++round_trips_;
        if (writing && draws.chance(sky.full)) {
            world->log("  " + made->name + ": the disk is full");
            world->sleep_until(std::min(limit, world->now() + way()));
            throw error{errc::out_of_resources,
                        "the disk is full",
                        {"", SQLITE_FULL, "database or disk is full"}};
        }
        made->on = session_;
        made->node = world->here().id;
        made->thread = world->current();
        if (to_.refuses && to_.refuses(*made)) {
            world->log("  " + made->name + ": refused");
            throw error{errc::timed_out, "made by the test"};
        }
        return receive(made, send(made, until));
    }

    journey send(const std::shared_ptr<request>& made, sql::deadline until) {
        auto& draws = world->draws;
        const auto& sky = to_.sky;
        const i64 limit = local_end(until);
        made->on = session_;
        made->node = world->here().id;
        made->thread = world->current();
        made->sent = world->now();
        made->give_up_at = limit;
        made->reply_delay = way_of_answer();
        i64 arrives = world->now() + way();
        journey one;
        const bool spared = to_.spared.contains(made->node);
        one.sent = sky.reaches(made->node) && (spared || !draws.chance(sky.lost_request));
        if (!spared && draws.chance(sky.lost_reply)) {
            made->answers = false;
            made->closes_after = true;
        } else if (!spared && draws.chance(sky.late)) {
            arrives += draws.skewed(0, sky.late_max);
            made->give_up_at = forever;
        }
        // After what was sent before it.
        arrives = std::max(arrives, latest_arrival_ + 1);
        latest_arrival_ = arrives;
        if (one.sent) to_.at(arrives, [&to = to_, made] { to.run(made); });
        // The kernel reports a broken connection soon, or never.
        one.reported = (!one.sent || !made->answers) && (spared || draws.chance(0.7));
        one.end = one.reported ? std::min(limit, arrives + way()) : limit;
        return one;
    }

    sql::result receive(const std::shared_ptr<request>& made, const journey& of) {
        while (!made->done && world->now() < of.end) world->block(made.get(), of.end);
        if (!made->done) give_up(made, of.sent, of.reported);
        if (world->prints != nullptr) {
            world->log("  " + made->name + ": answered after " +
                       std::to_string((world->now() - made->sent) / us) + " us");
        }
        state_ = made->state;
        if (const auto* const failure = std::get_if<error>(&made->answer)) throw error{*failure};
        auto& result = std::get<sql::result>(made->answer);
        if (to_.on_answer) to_.on_answer(*made, result);
        return std::move(result);
    }

    [[noreturn]] void give_up(const std::shared_ptr<request>& made, bool sent, bool reported) {
        world->log("  " + made->name + (reported ? ": the connection broke" : ": no answer"));
        alive_ = false;
        if (!sent) to_.close(session_);
        made->closes_after = true;
        throw reported ? driver::broken() : driver::unanswered();
    }

    /// One round trip where the server notifies.
    void listen(std::string_view channel, sql::deadline until) override {
        if (!alive_) throw driver::already_dead();
        if (session_->descriptor < 0) session_->descriptor = new_pollable();
        if (!presented().notifies) return;
        static_cast<void>(query("select 1", until));
        session_->channels.emplace(channel);
    }
    [[nodiscard]] int descriptor() const noexcept override { return session_->descriptor; }
    std::vector<sql::notification> take() override {
        if (!alive_) throw driver::already_dead();
        if (session_->descriptor < 0) return {};
        find_pollable(session_->descriptor)->readable = false;
        if (!presented().notifies) {
            if (!std::exchange(session_->has_changes, false)) return {};
            return {sql::notification{}};
        }
        if (session_->closed) {
            alive_ = false;
            throw driver::already_dead();
        }
        return std::exchange(session_->messages, {});
    }
    void want_changes(bool wanted) override {
        if (session_->descriptor < 0 || session_->wants_changes == wanted) return;
        session_->wants_changes = wanted;
        session_->has_changes = wanted;
        find_pollable(session_->descriptor)->readable = wanted;
    }

    database& to_;
    std::shared_ptr<server_session> session_;
    bool alive_ = true;
    sql::transaction_state state_ = sql::transaction_state::none;
    std::uint64_t round_trips_ = 0;
    i64 latest_arrival_ = 0;
};

}  // namespace

std::unique_ptr<sql::connection> connect(database& to, sql::deadline until) {
    const node& here = world->here();
    const i64 limit = here.truth(until.time_since_epoch().count());
    const bool refused = !to.sky.reaches(here.id) || world->draws.chance(to.sky.refused);
    const i64 answered = world->now() + world->draws.between(100 * us, 800 * us);
    world->sleep_until(std::min(limit, answered));
    if (refused || answered >= limit) throw driver::not_connected();
    return std::make_unique<link>(to, to.open_session(here.id));
}

}  // namespace rowlock::sim
