#include "fault/holders.hpp"

#include "support/queues.hpp"
#include "support/read_id.hpp"

#include <fstream>
#include <sstream>
#include <stdexcept>

namespace fault {

using namespace std::chrono_literals;

stress::role role_of(const holder_role& part) {
    stress::role made;
    made.ttl_ms = static_cast<int>(part.ttl.count());
    made.poll_ms = static_cast<int>(part.poll.count());
    made.program = ROWLOCK_FAULT_HOLDER;
    made.words = {"name=" + part.name, "table=" + part.table,
                  "heartbeat_ms=" + std::to_string(part.heartbeat.count()),
                  "gap_ms=" + std::to_string(part.gap.count()), "tick_ms=20"};
    made.environment = part.environment;
    return made;
}

holder_diary read_diary(const std::string& log) {
    std::ifstream file{log};
    if (!file) throw std::runtime_error{"no log " + log};
    holder_diary all;
    for (std::string text; std::getline(file, text);) {
        std::istringstream line{text};
        std::string kind;
        std::string what;
        line >> kind >> what;
        if (kind == "G") {
            int thread = 0;
            line >> thread >> all.token >> support::read_id(all.session) >> what >> all.called >>
                all.acquired;
        } else if (what == "woke") {
            line >> all.woke >> all.held_on_waking;
        } else if (what == "wrote") {
            std::string which;
            line >> which;
            if (which == "f") line >> all.fenced_write;
        } else if (what == "lost") {
            line >> all.lost;
        } else if (what == "clock") {
            holder_diary::tick one;
            line >> one.boot >> one.wall >> one.held;
            all.ticks.push_back(one);
        } else if (what == "end") {
            line >> all.held_at_the_end >> all.end;
        }
    }
    return all;
}

holders::holders(support::lock_database& database, const std::vector<holder_role>& parts)
    : database_{database}, crew_{database} {
    for (const auto& each : parts) crew_.add(role_of(each));
    crew_.begin();
    for (const auto& each : crew_.members()) {
        if (!each->says("holds", 30s)) throw std::runtime_error{"a process did not get its lock"};
    }
}

void holders::pause(std::size_t i) {
    const bool sqlite = database_.speaks() == rowlock::sql::dialect::sqlite;
    const std::lock_guard lock{mutex_};
    if (sqlite) database_.run("begin immediate");
    (*this)[i].pause();
    if (sqlite) database_.run("commit");
}

void holders::end(std::size_t i) {
    (*this)[i].stop();
    if (const int code = (*this)[i].wait(); code != 0) {
        throw std::runtime_error{"a holder ended with " + std::to_string(code)};
    }
}

void await_places(support::lock_database& database, int count) {
    if (support::places(database, count)) return;
    const auto stand = database.number("select count(*) from rowlock_ticket");
    const auto held =
        database.number("select count(*) from rowlock_lock where session is not null");
    throw not_prepared{std::to_string(stand) + " are queued instead of " + std::to_string(count) +
                       ", " + std::to_string(held) + " locks are held"};
}

write_table::write_table(support::lock_database& database)
    : database_{database}, name_{database.prefix() + "written"} {
    const auto speaks = database.speaks();
    using rowlock::sql::dialect;
    database_.run("create table " + name_ + " (id " +
                  (speaks == dialect::postgresql ? "bigint generated always as identity primary key"
                   : speaks == dialect::mysql    ? "bigint auto_increment primary key"
                                                 : "integer primary key autoincrement") +
                  ", kind char(1) not null, name varchar(100) not null, token bigint not null)");
}

write_table::~write_table() {
    try {
        database_.run("drop table " + name_);
    } catch (const std::exception&) {  // the row has failed already
    }
}

void write_table::write(char kind, const std::string& name, std::int64_t token) {
    database_.run("insert into " + name_ + " (kind, name, token) values ('" + kind + "', '" + name +
                  "', " + std::to_string(token) + ")");
}

int write_table::stale(char kind) {
    return static_cast<int>(database_.number(
        "select count(*) from " + name_ + " late where kind = '" + kind +
        "' and exists (select 1 from " + name_ +
        " early where early.kind = late.kind and early.name = late.name and early.id < late.id "
        "and early.token > late.token)"));
}

}  // namespace fault
