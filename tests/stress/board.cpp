#include "stress/board.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <stdexcept>

namespace stress {

// The file begins with zeros, which is what an empty board is.
mapped_board::mapped_board(const std::string& path) {
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void* mapped = MAP_FAILED;
    if (file >= 0 && ftruncate(file, sizeof(board)) == 0) {
        mapped = mmap(nullptr, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    if (file >= 0) close(file);
    if (mapped == MAP_FAILED) throw std::runtime_error{"no shared memory in " + path};
    board_ = static_cast<board*>(mapped);
}

mapped_board::~mapped_board() {
    munmap(board_, sizeof(board));
}

}  // namespace stress
