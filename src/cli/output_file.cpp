#include "cli/output_file.hpp"

#include "cli/descriptor.hpp"
#include "cli/exit_code.hpp"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace rowlock::cli {
namespace {

failure not_written(const std::string& path) {
    return {output_failed, "cannot write " + path + ": " + std::strerror(errno)};
}

void write_all(int file, std::string_view content, const std::string& path) {
    while (!content.empty()) {
        const auto written = write(file, content.data(), content.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) throw not_written(path);
        content.remove_prefix(static_cast<std::size_t>(written));
    }
}

/// A new file beside the one that it is to replace; removed by the destructor unless it has.
class temporary_file {
public:
    explicit temporary_file(const std::string& beside)
        : target_{beside}, path_{beside + ".XXXXXX"}, file_{mkostemp(path_.data(), O_CLOEXEC)} {
        if (file_.get() < 0) throw not_written(target_);
    }
    temporary_file(const temporary_file&) = delete;
    temporary_file& operator=(const temporary_file&) = delete;
    ~temporary_file() {
        if (!renamed_) unlink(path_.c_str());
    }

    void replace_target(std::string_view content) {
        if (fchmod(file_.get(), 0644) != 0) throw not_written(target_);
        write_all(file_.get(), content, target_);
        if (fsync(file_.get()) != 0) throw not_written(target_);
        if (rename(path_.c_str(), target_.c_str()) != 0) throw not_written(target_);
        renamed_ = true;
    }

private:
    const std::string& target_;
    std::string path_;
    descriptor file_;
    bool renamed_ = false;
};

}  // namespace

void require_replaceable(const std::string& path) {
    struct stat seen {};
    if (path.empty()) throw failure{usage, "--output needs the name of a file"};
    if (lstat(path.c_str(), &seen) != 0 || S_ISREG(seen.st_mode)) return;
    throw failure{usage, "--output replaces a regular file, which " + path +
                             " is not: leave --output out to write to standard output"};
}

void replace_file(const std::string& path, std::string_view content) {
    temporary_file{path}.replace_target(content);
}

}  // namespace rowlock::cli
