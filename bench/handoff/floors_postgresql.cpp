#include "common/postgresql.hpp"
#include "handoff/contests.hpp"

namespace handoff {
namespace {

class advisory_contender final : public contender {
public:
    advisory_contender(const std::string& url, const std::string& key, const entrant& who)
        : session_{url}, statements_{who.statements}, key_{key} {
        session_.query("set statement_timeout = '60s'");
        session_.prepare("lock", "select pg_advisory_lock(hashtextextended($1, 0))");
        session_.prepare("unlock", "select pg_advisory_unlock(hashtextextended($1, 0))");
    }
    void acquire() override { run("lock"); }
    void release() override { run("unlock"); }

private:
    void run(const char* statement) {
        ++statements_;
        session_.run(statement, {key_.c_str()});
    }

    bench::postgresql_session session_;
    std::atomic<std::uint64_t>& statements_;
    std::string key_;
};

class ring_contender final : public contender {
public:
    ring_contender(const std::string& url, const std::string& tag, const entrant& who)
        : session_{url},
          statements_{who.statements},
          next_{tag + "_" + std::to_string((who.index + 1) % who.clients)},
          begins_{who.index == 0} {
        session_.query("listen " + tag + "_" + std::to_string(who.index));
        session_.prepare("notify", "select pg_notify($1, '')");
    }
    void acquire() override {
        if (!begins_) session_.await_notification();
        begins_ = false;
    }
    void release() override {
        ++statements_;
        session_.run("notify", {next_.c_str()});
    }

private:
    bench::postgresql_session session_;
    std::atomic<std::uint64_t>& statements_;
    std::string next_;
    bool begins_;
};

}  // namespace

contest postgresql_advisory_lock(const std::string& url, const std::string& tag) {
    return {"floor: pg_advisory_lock", [=](const entrant& who) {
                return std::make_unique<advisory_contender>(url, tag, who);
            }};
}

contest postgresql_notify_ring(const std::string& url, const std::string& tag) {
    return {"floor: NOTIFY ring",
            [=](const entrant& who) { return std::make_unique<ring_contender>(url, tag, who); }};
}

}  // namespace handoff
