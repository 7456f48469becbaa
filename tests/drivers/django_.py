"""Django over psycopg: its own migrations, AddField with RunPython, and the ORM."""

import os
import sys
import tempfile

import django
from django.conf import settings

from common import PARTS, TENANTS, same, worked

settings.configure(
    DATABASES={"default": {
        "ENGINE": "django.db.backends.postgresql", "NAME": PARTS.path[1:], "USER": PARTS.username, "PASSWORD": PARTS.password,
        "HOST": PARTS.hostname, "PORT": PARTS.port, "OPTIONS": {"sslmode": "require"},
    }},
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "shop"],
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    USE_TZ=True,
)
MODELS = """
from django.db import models

class Owner(models.Model):
    name = models.CharField(max_length=50)

class Order(models.Model):
    owner = models.IntegerField()
    n = models.IntegerField()
    title = models.CharField(max_length=50)
    state = models.CharField(max_length=20)
    pk = models.CompositePrimaryKey("owner", "n")
"""
FIRST = """
from django.db import migrations, models

class Migration(migrations.Migration):
    operations = [
        migrations.CreateModel("Owner", [("id", models.BigAutoField(primary_key=True)), ("name", models.CharField(max_length=50))]),
        migrations.CreateModel("Order", [
            ("pk", models.CompositePrimaryKey("owner", "n", blank=True, editable=False, primary_key=True, serialize=False)),
            ("owner", models.IntegerField()), ("n", models.IntegerField()), ("title", models.CharField(max_length=50)),
        ]),
    ]
"""
SECOND = """
from django.db import migrations, models

def fill(apps, editor):
    order = apps.get_model("shop", "Order")
    assert order.objects.filter(state="n").count() == 60
    order.objects.filter(n=1).update(state="first")

class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]
    operations = [
        migrations.AddField("Order", "state", models.CharField(max_length=20, default="n"), preserve_default=False),
        migrations.RunPython(fill),
        migrations.AddIndex("Order", models.Index(fields=["owner", "state"], name="order_state")),
        migrations.RenameField("Owner", "name", "called"),
        migrations.RenameField("Owner", "called", "name"),
    ]
"""
directory = tempfile.mkdtemp()
for path, text in (("__init__.py", ""), ("models.py", MODELS), ("migrations/__init__.py", ""),
                   ("migrations/0001_initial.py", FIRST), ("migrations/0002_state.py", SECOND)):
    path = os.path.join(directory, "shop", path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
sys.path.insert(0, directory)
django.setup()

from django.contrib.auth.models import User  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import IntegrityError, connection, transaction  # noqa: E402
from django.db.models import Count, F, Sum  # noqa: E402

call_command("migrate", "shop", "0001", verbosity=0)
with connection.cursor() as cursor:
    for tables in ("{\"shop_order\": \"owner\"}", "{\"shop_owner\": \"id\"}"):
        cursor.execute("SELECT shardgate.distribute_tables(%s)", [tables])
worked("connect")

from shop.models import Order, Owner  # noqa: E402

with connection.cursor() as cursor:
    cursor.executemany("INSERT INTO shop_order VALUES (%s, %s, %s)", [(t, n, f"{t}.{n}") for t in TENANTS for n in (1, 2)])
call_command("migrate", verbosity=0)
same(Order.objects.filter(state="first").count(), len(TENANTS))
worked("migrations")

owners = Owner.objects.bulk_create(Owner(name=f"o{t}") for t in TENANTS)
same(len({owner.pk for owner in owners}), len(TENANTS))
same([owner.name for owner in Owner.objects.order_by("id")[:2]], ["o1", "o2"])
same(Order.objects.get(pk=(7, 2)).title, "7.2")
same(Order.objects.filter(owner__in=[3, 17]).aggregate(Sum("n"))["n__sum"], 6)
same(list(Order.objects.values("state").annotate(c=Count("title")).order_by("state").values_list("state", "c")), [("first", 30), ("n", 30)])
same(Order.objects.filter(n=2).update(n=F("n") + 1), len(TENANTS))
same(sum(1 for _ in Order.objects.order_by("owner", "n").iterator(chunk_size=7)), 2 * len(TENANTS))
worked("objects")

try:
    with transaction.atomic():
        Order.objects.all().delete()
        with transaction.atomic():
            Order.objects.bulk_create([Order(owner=t, n=9, title="x", state="y") for t in TENANTS])
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO shop_order VALUES (7, 9, 'twice', 'y')")
    raise AssertionError("the same key twice")
except IntegrityError:
    same(Order.objects.count(), 2 * len(TENANTS))
User.objects.create_user("ada", password="x")
same(User.objects.filter(username="ada").exists(), True)
worked("transactions")
