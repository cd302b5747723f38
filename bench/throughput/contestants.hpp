#pragma once

#include "common/findings.hpp"
#include "common/measure.hpp"
#include "common/program.hpp"
#include "common/tables.hpp"
#include "floors/floors.hpp"

#include <memory>
#include <string>

namespace CLI {
class App;
}

/// What the two programs about free locks share.
namespace bench {

struct throughput_options {
    int connections = rowlock::client_options{}.max_connections;
    int rounds = 0;        ///< 0: as many as --quick says
    int milliseconds = 0;  ///< the same
};

void add_throughput_options(CLI::App& app, throughput_options& options);
[[nodiscard]] round_options rounds_of(const program_options& common,
                                      const throughput_options& options);

/// Of the lock that the worker with this number wants; nobody else wants it.
[[nodiscard]] std::string name_of(int worker);

/// One client of ours for all threads.
[[nodiscard]] contestant ours(const tables& where, int threads, const throughput_options& options);
/// The same with release_mode::pipelined.
[[nodiscard]] contestant ours_pipelined(const tables& where, int threads,
                                        const throughput_options& options);
[[nodiscard]] contestant floor_of(floor_table& table, int threads);

/// Notes what was seen of a contestant.
void tell(findings& found, const std::string& where, const contestant& who, const pace& seen);

}  // namespace bench
