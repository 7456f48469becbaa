"""SQLAlchemy over psycopg, and migrations of Alembic in its own transactions."""

import pathlib
import tempfile

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from common import TENANTS, URL, same, worked

ENGINE_URL = URL.replace("postgresql://", "postgresql+psycopg://")
engine = sa.create_engine(ENGINE_URL)


class Base(DeclarativeBase):
    pass


class Tenant(Base):
    __tablename__ = "alchemy_tenant"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    tasks: Mapped[list["Task"]] = relationship(order_by="Task.n")


class Task(Base):
    __tablename__ = "alchemy_task"
    tenant_id: Mapped[int] = mapped_column(sa.ForeignKey("alchemy_tenant.id"), primary_key=True)
    n: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str | None]


Base.metadata.create_all(engine)
with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
    connection.execute(sa.text("SELECT shardgate.distribute_tables('{\"alchemy_tenant\": \"id\", \"alchemy_task\": \"tenant_id\"}')"))
names = sorted(name for name in sa.inspect(engine).get_table_names() if name.startswith("alchemy"))
same(names, ["alchemy_task", "alchemy_tenant"])
same(sa.inspect(engine).get_pk_constraint("alchemy_task")["constrained_columns"], ["tenant_id", "n"])
worked("schema")

with Session(engine) as session:
    session.add_all(Tenant(id=t, name=f"t{t}", tasks=[Task(n=n, title=f"{t}.{n}") for n in (1, 2)]) for t in TENANTS)
    session.commit()
with Session(engine) as session:
    session.get_one(Tenant, 7).tasks[0].title = "changed"
    session.flush()
    session.rollback()
    same(session.get_one(Tenant, 7).tasks[0].title, "7.1")
    session.get_one(Task, (7, 2)).title = "kept"
    session.delete(session.get_one(Task, (8, 2)))
    session.commit()
    loaded = session.scalars(sa.select(Tenant).options(sa.orm.selectinload(Tenant.tasks)).order_by(Tenant.id)).all()
    same([len(tenant.tasks) for tenant in loaded], [1 if tenant.id == 8 else 2 for tenant in loaded])
    joined = session.execute(sa.select(Tenant.name, sa.func.count()).join(Task).group_by(Tenant.id, Tenant.name).order_by(Tenant.id))
    same(joined.all()[6:8], [("t7", 2), ("t8", 1)])
    same(session.scalar(sa.select(Task.title).where(Task.tenant_id == 7, Task.n == 2)), "kept")
worked("objects")

FIRST = """
revision, down_revision = "a1", None
import sqlalchemy as sa
from alembic import op

def upgrade():
    op.add_column("alchemy_task", sa.Column("state", sa.String(20), server_default="new", nullable=False))
    op.execute("UPDATE alchemy_task SET state = 'old' WHERE n = 1")
    op.alter_column("alchemy_task", "state", server_default=None)
    op.create_index("alchemy_task_state", "alchemy_task", ["tenant_id", "state"])

def downgrade():
    op.drop_column("alchemy_task", "state")
"""
SECOND = """
revision, down_revision = "a2", "a1"
import sqlalchemy as sa
from alembic import op

def upgrade():
    op.create_check_constraint("known", "alchemy_task", "state IN ('new', 'old')")
    found = op.get_bind().execute(sa.text("SELECT state, count(*) FROM alchemy_task GROUP BY 1 ORDER BY 1")).all()
    assert found == [("new", 29), ("old", 30)], found

def downgrade():
    op.drop_constraint("known", "alchemy_task")
"""
ENV = """
from alembic import context
import sqlalchemy as sa
engine = sa.create_engine(context.config.get_main_option("sqlalchemy.url").replace("%%", "%"))
with engine.connect() as connection:
    context.configure(connection=connection)
    with context.begin_transaction():
        context.run_migrations()
"""
with tempfile.TemporaryDirectory() as directory:
    (pathlib.Path(directory) / "versions").mkdir()
    for name, text in (("env.py", ENV), ("script.py.mako", ""), ("versions/a1.py", FIRST), ("versions/a2.py", SECOND)):
        (pathlib.Path(directory) / name).write_text(text)
    config = Config()
    config.set_main_option("script_location", directory)
    config.set_main_option("sqlalchemy.url", ENGINE_URL.replace("%", "%%"))
    command.upgrade(config, "head")
    with engine.connect() as connection:
        same(connection.scalar(sa.text("SELECT version_num FROM alembic_version")), "a2")
        same(connection.scalar(sa.text("SELECT count(*) FROM alchemy_task WHERE state = 'old'")), 30)
    command.downgrade(config, "base")
    same("state" in [column["name"] for column in sa.inspect(engine).get_columns("alchemy_task")], False)
worked("migrations of Alembic")
