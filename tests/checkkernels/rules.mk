# checkkernels: every kernel of every instruction set (tests/checkkernels/main.c).
CHECK_SRC := $(filter-out $(FOREIGN),$(wildcard tests/checkkernels/*.c))
CHECK_OBJ := $(CHECK_SRC:%.c=$O/%.o)
TEST_PROGRAMS += $O/checkkernels

$O/checkkernels: $(CHECK_OBJ) $O/libcalla.a
	$(CC) $(SAN) $(LDFLAGS) -o $@ $^ -lm -lpthread

-include $(CHECK_OBJ:.o=.d)
