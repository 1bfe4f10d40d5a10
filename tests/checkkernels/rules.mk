# checkkernels: every kernel of every instruction set (tests/checkkernels/main.c).
CHECK_SRC := $(filter-out $(FOREIGN),$(wildcard tests/checkkernels/*.c))
CHECK_OBJ := $(CHECK_SRC:%.c=$O/%.o)
TEST_PROGRAMS += $O/checkkernels

$O/checkkernels: $(CHECK_OBJ) $O/libcalla.a
	$(CC) $(SAN) $(LDFLAGS) -o $@ $^ -lm -lpthread

-include $(CHECK_OBJ:.o=.d)

# The same for another processor, with what of the library it needs:
# make CC=aarch64-linux-gnu-gcc O=build/aarch64 build/aarch64/checkkernels-alone
ALONE_SRC := $(CHECK_SRC) $(filter-out $(FOREIGN),$(wildcard src/cpu/kernels*.c)) src/cpu/dispatch.c \
             $(addprefix src/base/,arena.c buf.c clock.c cpu_features.c err.c pool.c utf8.c)

$O/checkkernels-alone: $(ALONE_SRC:%.c=$O/%.o)
	$(CC) $(SAN) $(LDFLAGS) -o $@ $^ -lm -lpthread
